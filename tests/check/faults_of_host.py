"""Faults in the flags and on this machine."""

import socket
from collections.abc import Iterator, Sequence

from ccm.bus.paths import claim
from tests.check.row import Ground, Row, flags


def file_in_the_way(ground: Ground) -> Iterator[Sequence[str]]:
    (ground.directory / "file").write_text("")
    yield [f"--runtime-dir={ground.directory}/file/run"]


def state_in_a_file(ground: Ground) -> Iterator[Sequence[str]]:
    (ground.directory / "state").write_text("")
    yield [f"--state-dir={ground.directory}/state"]


def state_is_garbage(ground: Ground) -> Iterator[Sequence[str]]:
    (ground.directory / "deletions.json").write_text("{")
    yield [f"--state-dir={ground.directory}"]


def path_is_long(ground: Ground) -> Iterator[Sequence[str]]:
    yield [f"--runtime-dir={ground.directory}/{'x' * 100}"]


def others_can_look_in(ground: Ground) -> Iterator[Sequence[str]]:
    open_to_all = ground.directory / "run"
    open_to_all.mkdir(mode=0o755)
    yield [f"--runtime-dir={open_to_all}"]


def nobody_answers(ground: Ground) -> Iterator[Sequence[str]]:
    """A supervisor that holds the lock and does not answer."""
    directory = str(ground.directory / "run")
    _, lock = claim(directory)
    with lock:
        yield [f"--runtime-dir={directory}"]


def port_is_taken(ground: Ground) -> Iterator[Sequence[str]]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        yield [
            f"--secure-port={port}",
            "--bind-address=127.0.0.1",
            f"--runtime-dir={ground.directory}/run",
        ]


def certificate_is_none(ground: Ground) -> Iterator[Sequence[str]]:
    paths = [ground.directory / name for name in ("tls.crt", "tls.key")]
    for path in paths:
        path.write_text("nothing of the kind\n")
    yield [
        f"--secure-port={_free_port()}",
        f"--tls-cert-file={paths[0]}",
        f"--tls-private-key-file={paths[1]}",
    ]


def callers_are_strangers(ground: Ground) -> Iterator[Sequence[str]]:
    yield [f"--secure-port={_free_port()}"]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


ROWS = (
    Row(
        "a file is in the way of the runtime directory",
        "directories",
        "file is not a directory",
        "choose a directory that this user may write",
        file_in_the_way,
    ),
    Row(
        "the state directory is a file",
        "directories",
        "--state-dir: ",
        "choose a directory that this user may write",
        state_in_a_file,
    ),
    Row(
        "the state of deletions cannot be read",
        "directories",
        "deletions would be frozen",
        "mend or remove that file",
        state_is_garbage,
    ),
    Row(
        "the path of a socket is too long",
        "directories",
        "is too long for a socket in it",
        "choose a shorter path",
        path_is_long,
    ),
    Row(
        "others can look into the runtime directory",
        "directories",
        "has mode 0755: others can look in",
        "chmod 0700",
        others_can_look_in,
        state="warning",
    ),
    Row(
        "a supervisor that hangs has the runtime directory",
        "directories",
        "that does not answer",
        "stop that one first",
        nobody_answers,
    ),
    Row(
        "the port is taken",
        "https",
        "--secure-port: cannot listen on 127.0.0.1 port",
        "stop what uses it, or choose another --secure-port",
        port_is_taken,
        identity="admin",
    ),
    Row(
        "the certificate is none",
        "https",
        "--tls-cert-file: ",
        "give a certificate and its key, both PEM",
        certificate_is_none,
        identity="admin",
    ),
    Row(
        "callers cannot be recognised",
        "https",
        "the API server will not tell us who a caller is, what a caller may see",
        "apply what 'ccm-supervisor manifests' prints",
        callers_are_strangers,
        state="warning",
    ),
    Row(
        "routes are asked for without --cluster-cidr",
        "flags",
        "routes are left alone: without --cluster-cidr",
        "give --cluster-cidr, or set --configure-cloud-routes=false",
        flags("--cluster-cidr="),
        state="warning",
    ),
    Row(
        "a flag has no effect",
        "flags",
        "--allocate-node-cidrs=true has no effect",
        "leave it out",
        flags("--allocate-node-cidrs=true"),
        state="warning",
    ),
    Row(
        "a flag is for a controller that is off",
        "flags",
        "--load-balancer-classes=a has no effect: --controllers turns service-lb-controller off",
        "leave it out, or turn service-lb-controller on",
        flags("--load-balancer-classes=a", "--controllers=-service"),
        state="warning",
    ),
    Row(
        "a burst without a rate",
        "flags",
        "--kube-api-burst has no effect without --kube-api-qps",
        "give both",
        flags("--kube-api-burst=30"),
        state="warning",
    ),
    Row(
        "the Lease hardly outlasts the permission",
        "flags",
        "the Lease outlasts the leader's permission by 1s only",
        "lengthen --leader-elect-lease-duration",
        flags("--leader-elect-lease-duration=11s"),
        state="warning",
    ),
)
