"""Which nodes are asked about, and when the shutdown taint comes and goes: the pure decisions."""

import pytest

from ccm.model.cloud import Answer, Gone, Instance, PowerState, Unknown
from ccm.model.objects import SHUTDOWN_TAINT, Json, Node
from tests.support.nodes import OTHER_TAINT, node, ready, with_taint
from workers.node.plan import SHUTDOWN, SetTaints, plan_power

OFF = with_taint(SHUTDOWN)
OTHER = with_taint(OTHER_TAINT)
OTHER_EFFECT = {"key": SHUTDOWN_TAINT, "effect": "NoExecute"}
RUNNING, STOPPED, UNCLEAR = (Instance("fake://1", power=power) for power in PowerState)


@pytest.mark.parametrize(
    ("there", "answer", "taints"),
    [
        pytest.param(node(), RUNNING, None, id="NL3-NL7-NL8"),
        pytest.param(node(), STOPPED, [SHUTDOWN], id="NL9"),
        pytest.param(node(OTHER), STOPPED, [OTHER_TAINT, SHUTDOWN], id="NL9-beside-another"),
        pytest.param(node(OFF), STOPPED, None, id="NL9-already"),
        pytest.param(node(ready), STOPPED, None, id="NL14"),
        pytest.param(node(ready, OFF), STOPPED, [], id="NL14-already"),
        pytest.param(node(ready, OFF, OTHER), None, [OTHER_TAINT], id="ready-again"),
        pytest.param(node(OFF, OTHER), RUNNING, [OTHER_TAINT], id="on-again"),
        pytest.param(node(OFF), UNCLEAR, None, id="the-power-is-not-known"),
        pytest.param(node(OFF), Unknown("boom"), None, id="nothing-is-known"),
        pytest.param(node(OFF), Gone("404"), None, id="it-is-gone"),
        pytest.param(node(OFF), None, None, id="not-asked-yet"),
        pytest.param(node(ready, with_taint(OTHER_EFFECT)), STOPPED, None, id="TH4-another-effect"),
        pytest.param(
            node(with_taint({**SHUTDOWN, "value": "x"})), RUNNING, [], id="whatever-its-value"
        ),
    ],
)
def test_the_taint_follows_the_power_of_the_machine(
    there: Node, answer: Answer | None, taints: list[Json] | None
) -> None:
    assert list(plan_power(there, answer)) == ([] if taints is None else [SetTaints(taints)])
