"""`kubectl ccm`: the leader is found by its Lease, and does what is asked."""

import json
import time
from base64 import b64decode, b64encode
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from ccm.checks.serving_certificates import SIGNER
from ccm.cli.kubectl import main
from ccm.cli.main import main as ccm_supervisor
from tests.integration.status_page.statuses import HEALTHY, status, with_problems, worker
from tests.support.deadlines import timeout

FAKE = """#!/bin/sh
echo "$@" >> {directory}/calls
case "$*" in
  *" get lease "*) cat {directory}/lease ;;
  *" get pods "*) cat {directory}/pods ;;
  *" exec ccm-odd "*) echo '{{"a":' ;;
  *" exec ccm-list "*) echo '[1]' ;;
  *" exec ccm-slow "*) exec sleep 60 ;;
  *" exec ccm-long "*) exec cat /dev/zero ;;
  *" exec ccm-escapes "*) cat {directory}/escapes ;;
  *" exec ccm-b "*"status -o json") echo "container is not running" >&2; exit 1 ;;
  *"--raw=/statusz --server=https://cp-1:10258"*) echo "connection refused" >&2; exit 1 ;;
  *"--raw=/statusz"* | *"status -o json") cat {directory}/status ;;
  *" auth whoami "*) echo alice ;;
  *" get csr "*) cat {directory}/requests ;;
  *" get node vm-1 "*) cat {directory}/node ;;
  *" exec "*) echo "did: $*"; exit 3 ;;
esac
"""


def pod(name: str, node: str) -> object:
    return {"metadata": {"name": name}, "spec": {"nodeName": node}}


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in on PATH; the Lease is held by what runs on the node cp-2."""
    program = tmp_path / "bin" / "kubectl"
    program.parent.mkdir()
    program.write_text(FAKE.format(directory=tmp_path))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    outage = {"cloud_outage": {"seconds": 125, "why": "503 no answer"}}
    led = [("cp-1_uuid", "yesterday", 3), ("cp-2_uuid", "today", 4)]
    history = [{"identity": who, "since": when, "transitions": nth} for who, when, nth in led]
    leader = HEALTHY["leader"] | {"is_leader": True, "history": history}
    facts = with_problems(status(leader=leader, workers=[worker("node-0", **outage)]))
    lease = {"holderIdentity": "cp-2.example_uuid", "leaseTransitions": 4, "acquireTime": "today"}
    pods = [pod("ccm-b", "cp-1"), pod("ccm-a", "cp-2")]
    for name, body in {"lease": {"spec": lease}, "pods": {"items": pods}, "status": facts}.items():
        (tmp_path / name).write_text(json.dumps(body))
    return tmp_path


OUTAGE = "critical: Every read of the cloud has failed for 2m5s: 503 no answer."


def typed(*words: str) -> Result:
    return CliRunner().invoke(main, [*words])


def ours(*words: str) -> Result:
    """The same command of `ccm-supervisor`."""
    return CliRunner().invoke(ccm_supervisor, [*words])


def read(done: Result) -> list[str]:
    return [" ".join(line.split()) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    "words", [("explain", "node", "vm-1", "-o", "json"), ("restart", "node-0"), ("deletions",)]
)
def test_a_command_is_for_the_leader(words: tuple[str, ...], kubectl: Path) -> None:
    done = typed("--context=blue", *words)
    call = f"exec ccm-a -c ccm-supervisor -- ccm-supervisor {' '.join(words)}"
    last = (kubectl / "calls").read_text().splitlines()[-1]
    assert (last, done.exit_code) == (f"--namespace=kube-system --context=blue {call}", 3)


@pytest.mark.parametrize("node", ["worker-1", "cp-2.elsewhere"])
@pytest.mark.parametrize("name", ["cp-2", "cp-2.example"])
def test_a_pod_that_any_kubelet_can_run_is_not_the_leader(
    name: str, node: str, kubectl: Path
) -> None:
    """It would get the commands, and answer what it likes."""
    pods = [pod(name, node), pod("ccm-b", "cp-1"), pod("ccm-a", "cp-2.example")]
    (kubectl / "pods").write_text(json.dumps({"items": pods}))
    typed("deletions", "freeze")
    assert " exec ccm-a " in (kubectl / "calls").read_text().splitlines()[-1]


def request(name: str, *addresses: str, **status: object) -> object:
    """What a kubelet asks the API server for; its key is not looked at."""
    key = ec.generate_private_key(ec.SECP256R1())
    names = x509.SubjectAlternativeName(map(x509.IPAddress, map(ip_address, addresses)))
    made = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    signed = made.add_extension(names, critical=False).sign(key, hashes.SHA256())
    spec = {
        "signerName": SIGNER,
        "username": "system:node:vm-1",
        "request": b64encode(signed.public_bytes(Encoding.PEM)).decode(),
    }
    return {"metadata": {"name": name}, "spec": spec, "status": status}


@pytest.mark.parametrize("words", [("node", "vm-1"), ("no/vm-1",), ("node", "vm-1", "-o", "json")])
def test_an_explained_node_has_the_certificates_that_its_kubelet_waits_for(
    words: tuple[str, ...], kubectl: Path
) -> None:
    listed = [
        request("csr-now", "10.0.0.2"),
        request("csr-before", "10.0.0.1"),
        request("csr-done", "10.0.0.2", conditions=[{"type": "Approved"}]),
    ]
    addresses = [{"type": "InternalIP", "address": "10.0.0.2"}]
    node = {"metadata": {"name": "vm-1"}, "status": {"addresses": addresses}}
    for name, body in {"requests": {"items": listed}, "node": node}.items():
        (kubectl / name).write_text(json.dumps(body))
    assert typed("explain", *words).stderr.splitlines() == [
        "serving certificate: request csr-now waits for approval",
        "serving certificate: request csr-before is stale: it is for 10.0.0.1,"
        " and the Node has 10.0.0.2 by now; deny it",
    ]


KIND_OF_NAME = b"\x87\x04\x05\0\x05\0", b"\xa5\x04\x05\0\x05\0"
VERSION = b"\x02\x01\x00", b"\x02\x01\x05"


def odd(raw: Any, bytes_before: bytes, bytes_after: bytes) -> object:
    """The same with what no library reads, and an API server takes."""
    lines = b64decode(raw["spec"]["request"]).splitlines()
    der = b64decode(b"".join(lines[1:-1])).replace(bytes_before, bytes_after, 1)
    pem = b"\n".join((lines[0], b64encode(der), lines[-1]))
    spec = raw["spec"] | {"request": b64encode(pem).decode()}
    return raw | {"spec": spec}


@pytest.mark.parametrize("change", [KIND_OF_NAME, VERSION])
def test_what_one_kubelet_asks_for_hides_no_request_of_another(
    change: tuple[bytes, bytes], kubectl: Path
) -> None:
    many = request("csr-many", *(f"10.{n // 250}.{n % 250}.1" for n in range(5000)))
    listed = [odd(request("csr-odd", "5.0.5.0"), *change), many, request("csr-now", "10.0.0.2")]
    node = {"metadata": {"name": "vm-1"}, "status": {"addresses": []}}
    for name, body in {"requests": {"items": listed}, "node": node}.items():
        (kubectl / name).write_text(json.dumps(body))
    shown = typed("explain", "node", "vm-1").stderr
    assert "request csr-now is stale: it is for 10.0.0.2" in shown
    assert len(shown) < 1000


def test_a_freeze_names_the_user_of_the_cluster(kubectl: Path) -> None:
    typed("deletions", "freeze", "--reason=audit")
    last = (kubectl / "calls").read_text().splitlines()[-1]
    assert last.endswith("ccm-supervisor deletions freeze --reason=audit --by=alice")


def test_all_replicas_and_who_led_are_one_view(kubectl: Path) -> None:
    for done in (typed("status", "--all-replicas"), ours("status", "--all-replicas")):
        assert read(done) == [
            OUTAGE,
            "No answer from ccm-b: container is not running",
            "Replicas",
            "replica role problems node version workers",
            "ccm-a leader 1 cp-2 1.2.3 1 of 1 up",
            "ccm-b no answer - cp-1 - -",
            "Leaders, latest first",
            "leader since changes",
            "cp-2_uuid today 4",
            "cp-1_uuid yesterday 3",
        ]


def test_a_pod_that_any_kubelet_can_run_spoils_no_view_of_the_replicas(
    kubectl: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccm.cli.replicas.ANSWER_TIMEOUT", 0.5)
    monkeypatch.setattr("ccm.cli.replicas.MAX_ANSWER", 10_000)
    names = ("ccm-odd", "ccm-list", "ccm-slow", "ccm-long")
    pods = [pod("ccm-a", "cp-2"), *(pod(name, "worker-1") for name in names)]
    (kubectl / "pods").write_text(json.dumps({"items": pods}))
    began = time.monotonic()
    shown = read(typed("status", "--all-replicas"))
    assert time.monotonic() - began < timeout()
    assert "ccm-a leader 1 cp-2 1.2.3 1 of 1 up" in shown
    assert "No answer from ccm-odd: it is not a status" in shown
    assert "No answer from ccm-slow: not ended within 0.5 s" in shown
    assert "No answer from ccm-long: it printed more than 10000 bytes" in shown


def test_a_pod_that_any_kubelet_can_run_commands_no_terminal(kubectl: Path) -> None:
    clear = "\x1b[2Jcleared\x1b]0;title\x07"
    holder = {"identity": clear, "since": clear, "transitions": 5}
    leader = HEALTHY["leader"] | {"is_leader": True, "history": [holder]}
    facts = with_problems(status(leader=leader, version=clear, provider=clear))
    (kubectl / "escapes").write_text(json.dumps(facts))
    pods = [pod("ccm-a", "cp-2"), pod("ccm-escapes", "worker-1")]
    (kubectl / "pods").write_text(json.dumps({"items": pods}))
    said = typed("status", "--all-replicas").stdout
    assert "cleared" in said
    assert all(line.isprintable() for line in said.splitlines())


def test_replicas_on_hosts_are_asked_by_https(kubectl: Path) -> None:
    urls = [f"--replica=https://cp-{number}:10258" for number in (1, 2)]
    lines = read(ours("status", *urls, "--replica-ca=ca.pem"))
    assert lines[:2] == [OUTAGE, "No answer from cp-1: connection refused"]
    assert lines[4:6] == ["cp-2 leader 1 cp-2 1.2.3 1 of 1 up", "cp-1 no answer - cp-1 - -"]
    call = "get --raw=/statusz --server=https://cp-2:10258 --certificate-authority=ca.pem"
    assert f"--namespace=kube-system {call}" in (kubectl / "calls").read_text().splitlines()


def test_without_pods_there_is_a_remedy(kubectl: Path) -> None:
    (kubectl / "pods").write_text(json.dumps({"items": []}))
    done = ours("status", "--all-replicas")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.rstrip().endswith("name the replicas on hosts: --replica URL")


def test_without_a_leader_among_the_pods_there_is_a_reason(kubectl: Path) -> None:
    (kubectl / "lease").write_text(json.dumps({"spec": {"holderIdentity": "elsewhere_uuid"}}))
    done = typed("restart", "node-0")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "is held by 'elsewhere_uuid', and none of 2 Pods" in done.stderr
