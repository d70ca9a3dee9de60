"""A freeze of deletions counts for all replicas, whichever is asked, and outlives each of them."""

import shutil

import pytest

from tests.e2e.test_deletions import QUICK, silence_kubelets
from tests.support.cluster_nodes import kill
from tests.support.environment import Environment, until_asked
from tests.support.replicas import Election, Replica
from tests.support.running import Json, command, until

pytestmark = pytest.mark.real


def frozen(replica: Replica) -> Json | None:
    found: Json | None = replica.status()["deletions"]["frozen"]
    return found


async def test_a_freeze_from_any_replica_holds_for_all_of_them(env: Environment) -> None:
    election = Election(env, "ccm-frozen")
    names = await env.add_nodes(4)
    with Replica("a", election, *QUICK) as a:
        await env.nodes.until_initialized(4)
        with Replica("b", election, *QUICK) as b:
            await until("b stands by", lambda: b.is_in("standby"))
            said = await command(b, "deletions", action="freeze", reason="an audit", by="ada")
            assert "by any replica" in said
            await until("a knows it", lambda: frozen(a))
            await silence_kubelets(env, ["vm-1"])
            await env.admin.terminate("vm-1")
            await until("it is a candidate", lambda: a.status()["deletions"]["candidates"])
            await until_asked(env.admin)
            assert await env.node_names() == set(names)
            kill(a.process.pid)
            await until("a is gone", lambda: a.process.poll() is not None)
            shutil.rmtree(a.runtime, ignore_errors=True)
            await until("b leads", b.is_leading)
            await until("it is a candidate of b", lambda: b.status()["deletions"]["candidates"])
            await until_asked(env.admin)
            assert await env.node_names() == set(names)
            found = frozen(b)
            assert found
            assert (found["why"], found["by"]) == ("an audit", "ada")
            with Replica("c", election, *QUICK) as c:
                await until("c stands by", lambda: c.is_in("standby"))
                assert frozen(c) == found
                await command(c, "deletions", action="allow")
                await until("its node is gone", lambda: env.has_no_node("vm-1"))
    assert list(election.history().strays()) == []
