"""Faults in the flags and on this machine."""

import socket
from collections.abc import Iterator, Sequence

from ccm.bus.paths import claim
from tests.integration.check.planting import Ground, fails, flags, planted, warns


@planted
def file(ground: Ground, name: str, flag: str) -> Iterator[Sequence[str]]:
    """A file that is no directory, and no JSON."""
    (ground.directory / name).write_text("{")
    with flags(flag)(ground) as words:
        yield words


@planted
def others_can_look_in(ground: Ground) -> Iterator[Sequence[str]]:
    (ground.directory / "run").mkdir(mode=0o755)
    yield [f"--runtime-dir={ground.directory}/run"]


@planted
def nobody_answers(ground: Ground) -> Iterator[Sequence[str]]:
    """A supervisor that holds the lock and does not answer."""
    directory = str(ground.directory / "run")
    _, lock = claim(directory)
    with lock:
        yield [f"--runtime-dir={directory}"]


@planted
def port_is_taken(ground: Ground) -> Iterator[Sequence[str]]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port, directory = taken.getsockname()[1], ground.directory / "run"
        yield f"--secure-port={port} --bind-address=127.0.0.1 --runtime-dir={directory}".split()


@planted
def free_port(ground: Ground, *more: str) -> Iterator[Sequence[str]]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    yield [f"--secure-port={port}", *more]


@planted
def certificate_is_none(ground: Ground) -> Iterator[Sequence[str]]:
    certificate, key = (ground.directory / name for name in ("tls.crt", "tls.key"))
    for path in (certificate, key):
        path.write_text("nothing of the kind\n")
    files = f"--tls-cert-file={certificate}", f"--tls-private-key-file={key}"
    with free_port(*files)(ground) as words:
        yield words


ROWS = (
    fails(
        "a file is in the way of the runtime directory",
        "directories: file is not a directory",
        "choose a directory that this user may write",
        file("file", "--runtime-dir={}/file/run"),
    ),
    fails(
        "the state directory is a file",
        "directories: --state-dir: ",
        "choose a directory that this user may write",
        file("state", "--state-dir={}/state"),
    ),
    fails(
        "the state of deletions cannot be read",
        "directories: deletions would be frozen",
        "repair or remove that file",
        file("deletions.json", "--state-dir={}"),
    ),
    fails(
        "the path of a socket is too long",
        "directories: is too long for a socket in it",
        "choose a shorter path",
        flags(f"--runtime-dir={{}}/{'x' * 100}"),
    ),
    warns(
        "others can look into the runtime directory",
        "directories: has mode 0755: others can look in",
        "chmod 0700",
        others_can_look_in(),
    ),
    fails(
        "a supervisor that hangs has the runtime directory",
        "directories: that does not answer",
        "stop that one first",
        nobody_answers(),
    ),
    fails(
        "the port is taken",
        "https: --secure-port: cannot listen on 127.0.0.1 port",
        "stop what uses it, or choose another --secure-port",
        port_is_taken(),
        identity="admin",
    ),
    fails(
        "the certificate is none",
        "https: --tls-cert-file: ",
        "give a certificate and its key, both PEM",
        certificate_is_none(),
        identity="admin",
    ),
    warns(
        "callers cannot be recognised",
        "https: the API server does not report who a caller is, what a caller may see",
        "apply what 'ccm-supervisor manifests' prints",
        free_port(),
    ),
    warns(
        "a flag is for a controller that is off",
        "flags: "
        "--load-balancer-classes=a has no effect: --controllers turns service-lb-controller off",
        "leave it out, or turn service-lb-controller on",
        flags("--load-balancer-classes=a", "--controllers=-service"),
    ),
)
