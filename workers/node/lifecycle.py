"""What to do about a Node whose machine is off or gone: a pure decision, performed elsewhere."""

from collections.abc import Iterator

from ccm.model.cloud import Answer, Instance, PowerState
from ccm.model.node import SHUTDOWN_TAINT, Node
from ccm.model.objects import Json
from workers.node.plan import SetTaints

SHUTDOWN: Json = {"key": SHUTDOWN_TAINT, "effect": "NoSchedule"}


def is_watched(node: Node, scheme: str) -> bool:
    """Whether the cloud is asked about `node` in each round: ours, and not Ready.

    A Ready node that still carries our shutdown taint is only waiting for its removal.
    """
    return not node.is_ready and not node.is_foreign(scheme)


def plan_power(node: Node, answer: Answer | None) -> Iterator[SetTaints]:
    """Yield the change that makes the shutdown taint follow the machine's power, both ways.

    A Ready node never carries it, whatever the cloud says; without a positive answer about a node
    that is not Ready, nothing changes. (Upstream removes the taint only once the node is Ready.)
    """
    others = [taint for taint in node.taints if not _is_shutdown(taint)]
    has_taint = len(others) < len(node.taints)
    if node.is_ready:
        is_off = False
    elif isinstance(answer, Instance) and answer.power is not PowerState.UNKNOWN:
        is_off = answer.power is PowerState.STOPPED
    else:
        return
    if is_off and not has_taint:
        yield SetTaints([*others, SHUTDOWN])
    elif has_taint and not is_off:
        yield SetTaints(others)


def _is_shutdown(taint: Json) -> bool:
    return taint.get("key") == SHUTDOWN_TAINT and taint.get("effect") == "NoSchedule"
