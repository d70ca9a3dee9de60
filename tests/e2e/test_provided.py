"""A controller that a provider's package brings, a worker: the example of the page for authors."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.rbac.grants import Grain, applied, rendered, user
from tests.support.cluster_nodes import kill
from tests.support.environment import NODES, Environment
from tests.support.installed import install
from tests.support.running import Json, until

pytestmark = pytest.mark.real

PAGE = Path(__file__).parents[2] / "docs" / "provider-controllers.md"
LABEL = "example.com/power"
FLAGS = ("--controllers=*,-service,-route,power", "--use-service-account-credentials")
"""Without those whose accounts have rights from the API server's own roles."""


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of the page."""
    (example,) = re.findall(r'```python\n("""Labels each Node.*?)```', PAGE.read_text(), re.DOTALL)
    install(tmp_path / "site", monkeypatch, "simulated.power = ccm_power", ccm_power=example)


@pytest.fixture
def grains(env: Environment) -> Iterator[dict[Grain, str]]:
    """What is granted while the rendered rights are in force."""
    with applied(env.cluster, rendered("--cloud-provider=simulated", *FLAGS)) as grains:
        yield grains


async def states(env: Environment) -> dict[str, str]:
    """The label on each Node."""
    nodes: list[Json] = (await env.api.get(NODES))["items"]
    return {one["metadata"]["name"]: one["metadata"]["labels"].get(LABEL, "") for one in nodes}


async def all_are_running(env: Environment, count: int) -> bool:
    return list((await states(env)).values()) == ["running"] * count


async def test_a_providers_controller_is_a_worker_with_rights_and_a_life_of_its_own(
    env: Environment, grains: dict[Grain, str]
) -> None:
    kubeconfig = env.cluster.service_account_kubeconfig("kube-system", "ccm-supervisor")
    as_rendered = replace(env, where=replace(env.where, kubeconfig=kubeconfig))
    await env.add_nodes(5)
    with as_rendered.supervisor(*FLAGS) as supervisor:
        await until("nodes are labelled", lambda: all_are_running(env, 5))
        before = supervisor.pids()
        assert before.keys() == {"node-0", "volume-label", "power"}
        kill(before["power"])
        await env.add_nodes(1, first=6)
        await until("it runs again", lambda: supervisor.is_replaced("power", before["power"]))
        await until("the new node is labelled", lambda: all_are_running(env, 6))
        after = supervisor.pids()
        assert {name for name in after if after[name] != before[name]} == {"power"}
        assert "kube-system/power-controller" in supervisor.status()["identities"]
        assert supervisor.end() == 0
    granted = {(one.verb, one.resource) for one in grains if one.account == "power-controller"}
    assert granted == {("patch", "nodes")}
    asked = [one for one in env.cluster.audit() if one.user == user("power-controller")]
    assert {one.code for one in asked if one.resource == "nodes"} == {200}
    assert {one.resource for one in asked} <= {"nodes", "selfsubjectaccessreviews"}
