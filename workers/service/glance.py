"""Some of the balancers, for `status`: those in trouble first, because all may be too many."""

from collections.abc import Mapping
from enum import IntEnum
from heapq import nsmallest

from ccm.model.objects import Json, text
from workers.service.plan import Memory

SHOWN = 20
WAYS_IN = 4  # of one balancer


class State(IntEnum):
    """How a Service stands; the lower, the sooner people want to know."""

    REFUSED = 0
    LEAVING = 1  # the Service is being deleted, or gone
    PENDING = 2  # the cloud has not agreed in this process's life
    MADE = 3


def glance(memories: Mapping[str, Memory], now: float) -> list[Json]:
    """One entry a Service; of those that stand alike, what changed last comes first."""
    first = nsmallest(SHOWN, memories.items(), key=lambda item: _rank(item[1]))
    return [_entry(key, memory, now) for key, memory in first]


def _rank(memory: Memory) -> tuple[State, float]:
    return _state(memory), -_since(memory)


def _state(memory: Memory) -> State:
    if memory.refused:
        return State.REFUSED
    if memory.service.is_being_deleted or memory.is_gone or memory.is_deleted:
        return State.LEAVING
    return State.MADE if memory.made else State.PENDING


def _since(memory: Memory) -> float:
    """When the cloud last said something of it; a refusal that is in doubt was never said."""
    said = memory.refused or memory.made
    return said.at if said else 0.0


def _entry(key: str, memory: Memory, now: float) -> Json:
    made, since = memory.made, _since(memory)
    return {
        "service": key,
        "state": _state(memory).name.lower(),
        "seconds_ago": round(now - since, 1) if since > 0 else None,
        "hosts": len(made.hosts.nodes) if made else 0,
        "ways_in": _ways_in(memory),
        "why": memory.refused.why if memory.refused else "",
    }


def _ways_in(memory: Memory) -> list[str]:
    """Its addresses: what the cloud said, else what the Service says."""
    told = memory.made.ingress if memory.made else None
    ingress = memory.service.ingress if told is None else told
    ways = (text(way.get("ip")) or text(way.get("hostname")) for way in ingress)
    return list(filter(None, ways))[:WAYS_IN]
