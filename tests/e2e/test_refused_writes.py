"""Writes that a real API server refuses: told on the Node, tried again seldom, and nobody waits."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from ccm.errors import KubernetesError
from ccm.kube.client import MERGE_PATCH
from ccm.sandbox.kubelets import new_machines, register
from tests.support.environment import EVENTS, NODES, SERVICES, Environment, until_renewed
from tests.support.kube.cluster import RealCluster
from tests.support.running import ALL_CONTROLLERS, Json, in_background, until
from workers.performer import REVERTS
from workers.runner import REFUSAL

pytestmark = pytest.mark.real

COUNT = 40
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"


def refused(cluster: RealCluster) -> int:
    """Writes to Nodes that the API server has refused so far."""
    entries = cluster.audit()
    return sum(e.resource == "nodes" and e.is_write and e.code in (403, 422) for e in entries)


async def reported(env: Environment, reason: str) -> dict[str, str]:
    """The messages of Events with this reason, by Node."""
    items = (await env.api.get(EVENTS, {"limit": "2000"}))["items"]
    found = [item for item in items if item["reason"] == reason]
    return {item["involvedObject"]["name"]: item["message"] for item in found}


@asynccontextmanager
async def policy(env: Environment, expression: str) -> AsyncIterator[None]:
    """An admission policy on updates of Nodes: the expression has to hold."""
    name = "no-zones"
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["UPDATE"],
        "resources": ["nodes", "nodes/status"],
    }
    said = {"expression": expression, "message": "the operator says no"}
    spec: Json = {"matchConstraints": {"resourceRules": [rule]}, "validations": [said]}
    await env.api.post(POLICIES, {"metadata": {"name": name}, "spec": spec})
    binding = {"policyName": name, "validationActions": ["Deny"]}
    await env.api.post(f"{POLICIES[:-3]}ybindings", {"metadata": {"name": name}, "spec": binding})
    try:
        yield
    finally:
        for path in (f"{POLICIES[:-3]}ybindings", POLICIES):
            await env.api.request("DELETE", f"{path}/{name}")


async def test_nodes_with_impossible_labels_are_initialized_without_them(env: Environment) -> None:
    before = refused(env.cluster)
    machines = [
        replace(one, type="m5 large", zone="z" * 64) if number % 2 else one
        for number, one in enumerate(new_machines(1, COUNT))
    ]
    await env.admin.add(machines)
    await register(env.api, [one.name for one in machines])
    odd = {one.name for one in machines if " " in one.type}
    with env.supervisor():

        def initialized() -> bool:
            there = [*env.nodes.nodes.values()]
            return len(there) == COUNT and not any(node.is_uninitialized for node in there)

        await until("all Nodes are usable", initialized)
        messages = await until("they are told", lambda: all_reported(env, "LabelLeftOut", odd))
    assert refused(env.cluster) == before
    for name, message in messages.items():
        assert "'m5 large'" in message
        assert "node.kubernetes.io/instance-type" not in env.nodes.nodes[name].labels
        assert env.nodes.nodes[name].labels["topology.kubernetes.io/region"] == "region-1"


async def all_reported(env: Environment, reason: str, names: set[str]) -> dict[str, str]:
    messages = await reported(env, reason)
    return messages if messages.keys() >= names else {}


async def test_a_policy_that_denies_is_reported_and_costs_a_write_a_node(env: Environment) -> None:
    before = refused(env.cluster)
    expression = "!has(object.metadata.labels) || !('no' in object.metadata.labels)"
    async with policy(env, expression):
        denied = [replace(one, labels={"no": "x"}) for one in new_machines(1, COUNT)]
        await env.admin.add(denied)
        names = [one.name for one in denied]
        await register(env.api, names)
        await denial(env, names[0])
        with env.supervisor():
            began = time.monotonic()
            messages = await until(
                "they are told", lambda: all_reported(env, "WriteRefused", set(names))
            )
            await env.add_nodes(10, first=1000)
            await env.nodes.until_initialized(10)
            await until_renewed(env.api)
            count, seconds = refused(env.cluster) - before, time.monotonic() - began
    assert all("the operator says no" in message for message in messages.values())
    assert count <= 2 * COUNT * (1 + seconds // REFUSAL.delay(1, 1.0))


async def denial(env: Environment, name: str) -> None:
    """Until the policy is in force: a policy takes a moment."""

    async def is_denied() -> bool:
        patch = {"metadata": {"labels": {"no": "x"}}}
        path, dry = f"{NODES}/{name}", {"dryRun": "All"}
        try:
            await env.api.request("PATCH", path, patch, params=dry, content_type=MERGE_PATCH)
        except KubernetesError as error:
            return error.is_refusal
        return False

    await until("the policy is in force", is_denied)


async def test_two_writers_of_one_status_do_not_fight(env: Environment) -> None:
    """The other one writes whenever ours is there, by a user agent that begins with `test`."""
    path, theirs = f"{SERVICES}/web-1", "203.0.113.9"
    reverts: list[float] = []

    async def is_ours() -> bool:
        ingress = (await env.api.get(path))["status"]["loadBalancer"].get("ingress")
        return bool(ingress) and ingress[0]["ip"] != theirs

    async def fight() -> None:
        while True:
            if await is_ours():
                status = {"status": {"loadBalancer": {"ingress": [{"ip": theirs}]}}}
                await env.api.patch(f"{path}/status", MERGE_PATCH, status)
                reverts.append(time.monotonic())
            await asyncio.sleep(0.01)

    await env.add_nodes(1)
    await env.add_services(1)
    with env.supervisor(*ALL_CONTROLLERS) as supervisor:
        async with in_background(fight()):
            await until("they fight", lambda: len(reverts) >= REVERTS)
            await until_renewed(env.api)
        assert len(reverts) < 10
        [message] = (await reported(env, "WriteReverted")).values()
        assert message.startswith("'test', by managedFields, sets /status/loadBalancer back")
        await until("it is written again", is_ours)
        assert supervisor.log.read_text().count("writes reverted") == 1
