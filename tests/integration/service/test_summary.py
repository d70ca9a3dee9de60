"""Which balancers `status` names when there are many, and what it says of each."""

from dataclasses import replace

import pytest

from ccm.model.objects import Json
from workers.service.backends import Backends
from workers.service.state import (
    MAX_SERVICES_SHOWN,
    LastApplied,
    Refusal,
    ServiceState,
    summarize,
)

from .objects import being_deleted, service

HOSTS = Backends((), frozenset())
INGRESS: list[Json] = [{"ip": "192.0.2.1", "ipMode": "VIP"}, {"hostname": "lb.example"}]
ENSURED = ServiceState(owner=service(), last_applied=LastApplied({}, HOSTS, 90.0, INGRESS))
REFUSED = replace(ENSURED, refusal=Refusal({}, HOSTS, 95.0, "no quota is left"))


def with_status(raw: Json) -> None:
    raw["status"] = {"loadBalancer": {"ingress": INGRESS}}


def entry(state: str, **status: object) -> Json:
    common = {"service": "a", "state": state, "seconds_ago": None, "backends": 0}
    return common | {"addresses": [], "why": ""} | status


@pytest.mark.parametrize(
    ("state", "reported"),
    [
        (ServiceState(owner=service()), entry("pending")),
        (ENSURED, entry("ensured", seconds_ago=10.0, addresses=["192.0.2.1", "lb.example"])),
        (
            REFUSED,
            entry(
                "refused",
                seconds_ago=5.0,
                addresses=["192.0.2.1", "lb.example"],
                why="no quota is left",
            ),
        ),
        (
            ServiceState(owner=service(with_status)),
            entry("pending", addresses=["192.0.2.1", "lb.example"]),
        ),
        (ServiceState(owner=service(being_deleted)), entry("deleting")),
        (ServiceState(owner=service(), is_owner_gone=True), entry("deleting")),
    ],
)
def test_what_is_said_of_one(state: ServiceState, reported: Json) -> None:
    assert summarize({"a": state}, 100.0) == [reported]


def test_those_in_trouble_come_first_then_what_changed_last() -> None:
    applied = [LastApplied({}, HOSTS, 50.0 + number) for number in range(500)]
    states = {f"made-{n}": replace(ENSURED, last_applied=one) for n, one in enumerate(applied)}
    states |= {"pending": ServiceState(owner=service()), "refused": REFUSED}
    states |= {"deleting": ServiceState(owner=service(being_deleted))}
    named = [entry["service"] for entry in summarize(states, 1000.0)]
    assert named[:5] == ["refused", "deleting", "pending", "made-499", "made-498"]
    assert len(named) == MAX_SERVICES_SHOWN


def test_a_refusal_that_is_asked_about_again_has_no_age() -> None:
    retried = Refusal({}, HOSTS, float("-inf"), "no quota is left")
    (reported,) = summarize({"a": replace(REFUSED, refusal=retried)}, 100.0)
    assert (reported["state"], reported["seconds_ago"]) == ("refused", None)
