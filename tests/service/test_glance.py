"""Which balancers `status` names when there are many, and what it says of each."""

from dataclasses import replace

import pytest

from ccm.model.objects import Json
from workers.service.glance import SHOWN, glance
from workers.service.hosts import hosts_of
from workers.service.plan import Made, Memory, Refusal

from .objects import being_deleted, service

HOSTS = hosts_of([])
WAY_IN: list[Json] = [{"ip": "192.0.2.1", "ipMode": "VIP"}, {"hostname": "lb.example"}]
MADE = Memory(service(), Made({}, HOSTS, 90.0, WAY_IN))
REFUSED = replace(MADE, refused=Refusal({}, HOSTS, 95.0, "no quota is left"))


def with_status(raw: Json) -> None:
    raw["status"] = {"loadBalancer": {"ingress": WAY_IN}}


def entry(state: str, **status: object) -> Json:
    common = {"service": "a", "state": state, "seconds_ago": None, "hosts": 0}
    return common | {"ways_in": [], "why": ""} | status


@pytest.mark.parametrize(
    ("memory", "told"),
    [
        (Memory(service()), entry("pending")),
        (MADE, entry("made", seconds_ago=10.0, ways_in=["192.0.2.1", "lb.example"])),
        (
            REFUSED,
            entry(
                "refused",
                seconds_ago=5.0,
                ways_in=["192.0.2.1", "lb.example"],
                why="no quota is left",
            ),
        ),
        (
            Memory(service(with_status)),
            entry("pending", ways_in=["192.0.2.1", "lb.example"]),
        ),
        (Memory(service(being_deleted)), entry("leaving")),
        (Memory(service(), is_gone=True), entry("leaving")),
    ],
)
def test_what_is_said_of_one(memory: Memory, told: Json) -> None:
    assert glance({"a": memory}, 100.0) == [told]


def test_those_in_trouble_come_first_then_what_changed_last() -> None:
    memories = {f"made-{n}": replace(MADE, made=Made({}, HOSTS, 50.0 + n)) for n in range(500)}
    memories |= {"pending": Memory(service()), "refused": REFUSED}
    memories |= {"leaving": Memory(service(being_deleted))}
    named = [entry["service"] for entry in glance(memories, 1000.0)]
    assert named[:5] == ["refused", "leaving", "pending", "made-499", "made-498"]
    assert len(named) == SHOWN


def test_a_refusal_that_is_asked_about_again_has_no_age() -> None:
    (told,) = glance({"a": REFUSED.asking_again()}, 100.0)
    assert (told["state"], told["seconds_ago"]) == ("refused", None)
