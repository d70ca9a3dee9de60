"""A planned condition as the patch that sets it; the Node's other conditions stay as they are."""

from datetime import UTC, datetime
from urllib.parse import quote

from ccm.model.node import Node
from ccm.model.objects import Json
from workers.performer import Merge
from workers.route.plan import CONDITION, CREATED, NOT_CREATED, SetCondition


def patch_for(node: Node, action: SetCondition, now: datetime) -> Merge:
    """The write for `action`; it is refused when the Node is another one by now."""
    written: Json = {
        "type": CONDITION,
        "status": "True" if action.is_unavailable else "False",
        "reason": NOT_CREATED if action.is_unavailable else CREATED,
        "message": action.message,
        "lastHeartbeatTime": _time(now),
    }
    if action.is_turn:
        written["lastTransitionTime"] = _time(now)
    body: Json = {"metadata": {"uid": node.uid}, "status": {"conditions": [written]}}
    return Merge(f"/api/v1/nodes/{quote(node.name)}/status", body)


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
