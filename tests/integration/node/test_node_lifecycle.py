"""What becomes of a Node that is not Ready (rows NL1 to NL15), on both API servers."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from ccm.errors import CloudError, KubernetesError, Unreachable
from ccm.kube.client import STRATEGIC_PATCH, Kube
from ccm.model.cloud import Answer, Gone, Instance, PowerState
from ccm.model.objects import SHUTDOWN_TAINT, Json, Node
from ccm.model.writes import Delete
from tests.integration.edge_cases.servers import ApiServer
from tests.support.context import FakePort
from tests.support.deadlines import timeout, within
from tests.support.nodes import (
    OTHER_TAINT,
    Tweak,
    node,
    tainted,
    with_finalizer,
    with_provider_id,
    with_taint,
)
from tests.support.rows import row
from tests.support.waiting import until
from workers.performer import Performer

from .world import SupervisedWorld, supervised_world

ID = "fake://12345"
RUNNING = Instance(ID)
STOPPED = Instance(ID, power=PowerState.STOPPED)
GONE = Gone("no such machine")
OURS = with_provider_id(ID)


def is_ready(status: str) -> Tweak:
    return lambda raw: raw["status"].update(conditions=[{"type": "Ready", "status": status}])


async def put(api_server: ApiServer, w: SupervisedWorld, *tweaks: Tweak) -> Node:
    """A Node that both halves of the world have seen."""
    made = await api_server.node(node(with_taint(OTHER_TAINT), *tweaks))
    await until(lambda: w.nodes.get(made.name) and w.context.store.get("Node", made.name))
    return made


async def after_passes(api_server: ApiServer, w: SupervisedWorld, made: Node) -> Json | None:
    await w.passes()
    await until(lambda: not len(w.context.queue))
    return await api_server.find(made)


@pytest.mark.parametrize(
    ("tweaks", "answers"),
    [
        pytest.param([is_ready("Unknown"), OURS], [GONE], id="NL4"),
        pytest.param([is_ready("False"), OURS], [GONE], id="NL6"),
        pytest.param([is_ready("False"), OURS], [RUNNING, GONE], id="NL13"),
        pytest.param([OURS], [GONE], id="no-condition"),
        pytest.param([is_ready("False"), OURS], [STOPPED, GONE], id="it-was-off-before"),
        pytest.param([is_ready("False"), OURS, tainted], [GONE], id="uninitialized"),
    ],
)
async def test_a_node_whose_machine_is_gone_is_deleted(
    api_server: ApiServer,
    tweaks: list[Tweak],
    answers: list[Answer],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    async with supervised_world(api_server.kube) as w:
        made = await put(api_server, w, *tweaks)
        for answer in answers:
            w.machines.answers[made.name] = answer
            await w.passes(2)
        await until_gone(api_server, made)
        await until(lambda: "node deleted" in caplog.messages)
    (reported,) = (vars(one) for one in caplog.records if one.message == "node deleted")
    assert (reported["node"], reported["why"]) == (made.name, GONE.evidence)


@pytest.mark.parametrize("is_final", [True, False])
async def test_what_the_cloud_says_to_have_ended_is_reported_so(
    api_server: ApiServer, is_final: bool
) -> None:
    async with supervised_world(api_server.kube) as w:
        made = await put(api_server, w, is_ready("False"), OURS)
        w.machines.answers[made.name] = Gone("it is terminated", is_final=is_final)
        await w.passes()
        reported = [one for one in w.proposals if one.asked][-1]
        assert [one[4] for one in reported.gone] == [is_final]


async def test_what_was_said_of_a_name_is_not_proposed_once_the_node_has_its_provider_id(
    api_server: ApiServer,
) -> None:
    """A list may lack a machine that was just made; it ended for ever under another ID."""
    async with supervised_world(api_server.kube) as w:
        made = await put(api_server, w, is_ready("False"))
        await w.passes()
        w.machines.gate.clear()
        w.machines.answers[made.name] = Gone("no machine has this name", is_final=True)
        asked = len(w.machines.reads)
        await until(lambda: len(w.machines.reads) > asked)
        path = f"/api/v1/nodes/{made.name}"
        await api_server.kube.patch(path, STRATEGIC_PATCH, {"spec": {"providerID": ID}})
        await until(lambda: Node(w.context.store.get("Node", made.name) or {}).provider_id)
        proposed = len(w.proposals)
        w.machines.gate.set()
        await until(lambda: len(w.proposals) > proposed)
        w.machines.answers[made.name] = RUNNING
        assert w.proposals[proposed].gone == []
        await w.passes()
        assert await api_server.find(made)


async def test_a_node_that_someone_holds_is_deleted_once_and_then_left_alone(
    api_server: ApiServer,
) -> None:
    """Its finalizer is another controller's: what is left to do is theirs."""
    async with supervised_world(api_server.kube) as w:
        held = await put(api_server, w, is_ready("False"), OURS, with_finalizer("example.com/held"))
        w.machines.answers[held.name] = GONE
        await until(lambda: Node(w.context.store.get("Node", held.name) or {}).is_being_deleted)
        await w.passes()
        asked = len(w.machines.reads)
        permitted = w.governor.status(0.0)["counts"]["permitted"]
        await w.passes()
        assert len(w.machines.reads) == asked, "the cloud is asked about a Node that is done"
        assert w.governor.status(0.0)["counts"]["permitted"] == permitted
        w.machines.answers[held.name] = STOPPED
        await w.passes()
        found = await api_server.find(held)
        assert found
        assert SHUTDOWN_TAINT not in {taint["key"] for taint in found["spec"]["taints"]}
        assert w.governor.status(0.0)["counts"]["permitted"] == permitted


async def turn(api_server: ApiServer, w: SupervisedWorld, made: Node, status: str) -> None:
    """Let the Node be Ready or not, until the controller has seen it."""
    conditions = [{"type": "Ready", "status": status}]
    path = f"/api/v1/nodes/{made.name}/status"
    await api_server.kube.patch(path, STRATEGIC_PATCH, {"status": {"conditions": conditions}})
    is_ready = status == "True"
    await until(lambda: Node(w.context.store.get("Node", made.name) or {}).is_ready == is_ready)
    await until(lambda: not len(w.context.queue))


async def until_gone(api_server: ApiServer, made: Node) -> None:
    async with within():
        while await api_server.find(made):  # noqa: ASYNC110 - the server is asked
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("tweaks", "answer", "is_asked"),
    [
        # Deliberate difference: without a provider ID the cloud's "no" is about a name only.
        pytest.param([is_ready("False")], GONE, True, id="NL1-NL10-NL12"),
        pytest.param([is_ready("False"), OURS], CloudError("boom"), True, id="NL2"),
        pytest.param([is_ready("False"), OURS], RUNNING, True, id="NL3-NL7"),
        pytest.param([is_ready("True"), OURS], GONE, False, id="NL5"),
        pytest.param([is_ready("Unknown"), OURS], RUNNING, True, id="NL8"),
        pytest.param([is_ready("False")], CloudError("boom"), True, id="NL11"),
        pytest.param([is_ready("True"), OURS], STOPPED, False, id="NL14"),
        pytest.param([is_ready("False"), OURS], None, True, id="the-cloud-leaves-it-out"),
        pytest.param([is_ready("False"), with_provider_id("other://1")], GONE, False, id="foreign"),
    ],
)
async def test_any_other_node_stays_as_it_is(
    api_server: ApiServer, tweaks: list[Tweak], answer: Answer | Exception | None, is_asked: bool
) -> None:
    async with supervised_world(api_server.kube) as w:
        if isinstance(answer, Exception):
            w.machines.failures = [answer] * 1000
        made = await put(api_server, w, *tweaks)
        if answer and not isinstance(answer, Exception):
            w.machines.answers[made.name] = answer
        assert await after_passes(api_server, w, made) == made.raw
        assert any(made.name in read for read in w.machines.reads) is is_asked
        is_reported = is_asked and answer is not GONE
        assert (made.name in w.proposals[-1].not_gone) is is_reported
        assert w.governor.status(0.0)["counts"]["permitted"] == 0


@pytest.mark.parametrize("status", [pytest.param("False", id="NL9"), "Unknown"])
async def test_a_node_whose_machine_is_off_is_tainted_until_it_is_on(
    api_server: ApiServer, status: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with supervised_world(api_server.kube) as w:
        made = await put(api_server, w, is_ready(status), OURS)
        w.machines.answers[made.name] = STOPPED
        shutdown = {"key": SHUTDOWN_TAINT, "effect": "NoSchedule"}
        found = await until_taints(api_server, made, [OTHER_TAINT, shutdown])
        assert await after_passes(api_server, w, made) == found
        w.machines.answers[made.name] = RUNNING
        await until_taints(api_server, made, [OTHER_TAINT])
        await until(lambda: "shutdown taint removed" in caplog.messages)
    reported = [vars(one) for one in caplog.records if one.message.startswith("shutdown")]
    assert [(one["message"], one["node"]) for one in reported] == [
        ("shutdown taint set", made.name),
        ("shutdown taint removed", made.name),
    ]


async def until_taints(api_server: ApiServer, of: Node, expected: list[Json]) -> Json:
    """The Node as soon as it has these taints."""
    async with within():
        while True:
            found = await api_server.find(of)
            assert found
            if Node(found).taints == expected:
                return found
            await asyncio.sleep(0.01)


async def test_a_node_that_is_ready_when_its_deletion_is_about_to_leave_stays(
    api_server: ApiServer,
) -> None:
    is_open = asyncio.Event()
    is_open.set()

    async def bearer() -> str:
        await is_open.wait()
        return await api_server.kube.config.bearer()

    kube = Kube(replace(api_server.kube.config, bearer=bearer), "waits")
    async with supervised_world(kube) as w:
        made = await put(api_server, w, is_ready("False"), OURS)
        is_open.clear()
        w.machines.answers[made.name] = GONE
        await until(lambda: w.governor.status(0.0)["counts"]["permitted"])
        await turn(api_server, w, made, "True")
        is_open.set()
        await w.passes(8)
        assert await api_server.find(made), "it was deleted"
    await kube.close()


class Between(Kube):
    """What stands before the API server: it keeps deletions, or a Node changes before each."""

    def __init__(self, api_server: ApiServer, keeps: bool) -> None:
        super().__init__(api_server.kube.config, "between")
        self.keeps, self.kept, self.changes = keeps, list[tuple[str, Any]](), 0

    async def request(self, method: str, path: str, body: Any = None, **how: Any) -> Json:
        if method == "DELETE" and self.keeps:
            self.kept.append((path, body))
            raise Unreachable("no answer")
        if method == "DELETE" and self.changes < 2:
            self.changes += 1
            change = {"metadata": {"labels": {"changed": str(self.changes)}}}
            await super().request("PATCH", path, change, content_type=STRATEGIC_PATCH)
        return await super().request(method, path, body, **how)


async def test_a_deletion_that_arrives_late_deletes_no_node_that_is_ready_by_then(
    api_server: ApiServer,
) -> None:
    between = Between(api_server, keeps=True)
    async with supervised_world(between) as w:
        made = await put(api_server, w, is_ready("False"), OURS)
        w.machines.answers[made.name] = GONE
        await until(lambda: between.kept)
        w.machines.answers[made.name] = RUNNING
        await turn(api_server, w, made, "True")
    for path, body in between.kept:
        with pytest.raises(KubernetesError) as raised:
            await api_server.kube.request("DELETE", path, body)
        assert raised.value.status == 409
    assert await api_server.find(made), "it was deleted"
    await between.close()


async def test_a_node_that_changes_before_its_deletion_arrives_is_deleted_all_the_same(
    api_server: ApiServer,
) -> None:
    between = Between(api_server, keeps=False)
    made = await api_server.node(node(is_ready("False"), OURS))
    performer = Performer(between, FakePort().permission, grace=timeout())
    await performer.perform(Delete(f"/api/v1/nodes/{made.name}", made.uid))
    assert between.changes == 2
    await until_gone(api_server, made)
    await between.close()


@row("NL15")
async def test_a_deletion_is_reported_with_a_whole_reference(api_server: ApiServer) -> None:
    async with supervised_world(api_server.kube) as w:
        made = await put(api_server, w, is_ready("False"), OURS)
        w.machines.answers[made.name] = GONE
        await until_gone(api_server, made)
        await w.context.recorder.drain(timeout())
        events = (await api_server.kube.get("/api/v1/namespaces/default/events"))["items"]
    of_node = [one for one in events if one["involvedObject"]["name"] == made.name]
    assert [one["reason"] for one in of_node] == ["DeletingNode"], of_node
    (reported,) = of_node
    object_ref = {"apiVersion": "v1", "kind": "Node", "name": made.name, "uid": made.uid}
    assert reported["involvedObject"] == object_ref
    assert (reported["type"], reported["reason"]) == ("Normal", "DeletingNode")
    expected = f"Deleting node {made.name} because it does not exist in the cloud provider"
    assert reported["message"] == expected
