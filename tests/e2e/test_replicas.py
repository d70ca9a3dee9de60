"""All replicas in one view: real processes on real ports, asked by the real kubectl."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner

from ccm.cli.main import main
from tests.integration.https.test_real import REVIEWER
from tests.support.environment import Environment
from tests.support.kube.build import find_binaries
from tests.support.kube.ports import ReservedPort
from tests.support.pki import Authority
from tests.support.replicas import Election, Replica
from tests.support.running import until, until_none

pytestmark = pytest.mark.real


@pytest.fixture
def ports(env: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Of servers whose authority is `ca.pem`; kubectl is an administrator's."""
    binaries = find_binaries()
    assert binaries
    monkeypatch.setenv("PATH", f"{binaries}:{os.environ['PATH']}")
    monkeypatch.setenv("KUBECONFIG", str(env.cluster.kubeconfig("admin")))
    reserved = [ReservedPort() for _ in range(3)]
    yield [port.number for port in reserved]
    for port in reserved:
        port.release()


async def test_replicas_and_who_led_are_one_view(
    env: Environment, tmp_path: Path, ports: list[int]
) -> None:
    election, authority = Election(env, "ccm-viewed"), Authority("replicas")
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    pair = authority.server("localhost").flags(tmp_path)
    served = ["--bind-address=127.0.0.1", "--permit-port-sharing"]
    served += [f"--{name.replace('_', '-')}={file}" for name, file in pair.items()]

    def replica(name: str, port: int) -> Replica:
        replica = Replica(name, election, *served, f"--secure-port={port}")
        account = f"{election.lease}-{name}"
        env.cluster.service_account_kubeconfig("ccm-replicas", account, REVIEWER)
        return replica

    async def differs(*expected: str) -> list[str]:
        """The first words of lines that should be there and are not."""
        urls = [f"--replica=https://localhost:{port}" for port in ports]
        command = ["status", *urls, f"--replica-ca={tmp_path}/ca.pem"]
        done = await asyncio.to_thread(CliRunner().invoke, main, command)
        lines = [" ".join(line.split()) for line in done.output.splitlines()]
        rows = [line for line in lines if line.startswith(("localhost", *holders))]
        wrong = [e for e, row in zip(expected, rows, strict=False) if not row.startswith(e)]
        return [*wrong, done.output] if wrong or len(rows) != len(expected) else []

    holders: list[str] = []
    with ExitStack() as running:
        first = running.enter_context(replica("a", ports[0]))
        await until("it leads", first.is_leading)
        others = [running.enter_context(replica(*it)) for it in zip("bc", ports[1:], strict=True)]
        await until("others stand by", lambda: all(one.is_in("standby") for one in others))
        holders.append((await env.lease_spec(election.lease))["holderIdentity"])
        row = "localhost {} 0 localhost"
        standby = row.format("standby")

        async def with_one() -> list[str]:
            return await differs(row.format("leader"), standby, standby, holders[0])

        await until_none("missing", with_one)
        started = first.log.read_text().splitlines()
        assert len(started) <= 8, started  # docs/logs.md
        (named,) = [line for line in started if " supervisor starting " in line]
        for name in ("version", "provider", "cluster", "configuration", "kubernetes", "identity"):
            assert f" {name}=" in named
        assert first.end() == 0
        second = await until(
            "another leads", lambda: next(filter(Replica.is_leading, others), None)
        )
        assert second
        holders.append((await env.lease_spec(election.lease))["holderIdentity"])

        async def after() -> list[str]:
            lost = "localhost no answer - localhost"
            return await differs(row.format("leader"), lost, standby, holders[1], holders[0])

        await until_none("missing", after)
