"""What checks make of the cloud's answers and of its quota."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from ccm.checks.cloud import budget, reads
from ccm.checks.look.cloud import Read
from ccm.cloud.interface import Quota
from ccm.errors import CloudError, Denied, NotImplementedByProvider, Refused, Throttled
from ccm.settings import Settings
from tests.check.row import states


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (None, "ok"),
        (Denied("403"), "failed"),
        (Throttled("429"), "warning"),
        (Refused("no"), "failed"),
        (CloudError("reset"), "failed"),
        (NotImplementedByProvider("never"), "ok"),
    ],
)
def test_an_error_of_the_cloud_is_told_of_once(error: CloudError | None, state: str) -> None:
    asked = [Read("routes", "routes", error=error), Read("volumes", "a volume", error=error)]
    assert states(reads.judge(asked)) == [state]


# The budget.

LARGE = budget.Facts(
    settings=Settings(node_workers=1),
    quotas={"read": Quota(20.0, 40)},
    batch_size=100,
    nodes=5000,
    unready=0,
    does_nodes=True,
    does_lifecycle=True,
    cost={"instances": Counter({"read": 1}), "routes": Counter({"read": 50})},
)


def test_calls_an_hour_are_those_that_come_whatever_happens() -> None:
    # 50 batches every 5 minutes, and 50 pages of routes every 10 minutes.
    [found] = budget.judge(LARGE)
    assert found.seen == "read: about 900 calls an hour of 72000 (1%)"


@pytest.mark.parametrize(
    ("changes", "state", "word"),
    [
        ({"quotas": {"read": Quota(0.4, 1)}}, "warning", "900 calls an hour of 1440 (62%)"),
        ({"quotas": {"read": Quota(0.2, 1)}}, "failed", "(125%): it will never keep up"),
        ({"settings": Settings(cloud_rate={"read": 0.2})}, "failed", "of 720 (125%)"),
        ({"settings": Settings(cloud_reserve=0.9)}, "ok", "of 7200 (13%)"),
        ({"settings": Settings(node_workers=60)}, "ok", "about 1020 calls"),
        ({"unready": 5000}, "warning", "about 36900 calls"),  # a read a round whatever its size
        ({"does_nodes": False, "does_lifecycle": False}, "ok", "about 300 calls"),
        ({"cost": {}}, "ok", "no calls but for changes"),
    ],
)
def test_the_budget_is_judged_by_its_share(changes: Any, state: str, word: str) -> None:
    found = list(budget.judge(replace(LARGE, **changes)))
    assert state in states(found)
    assert any(word in each.seen for each in found), found


def test_a_start_that_takes_long_is_told() -> None:
    slow = replace(LARGE, quotas={"read": Quota(1.0, 1)}, batch_size=1, unready=0)
    found = [each for each in budget.judge(slow) if "nodes once takes" in each.seen]
    assert [each.seen.partition(": to ask")[2] for each in found] == [
        " about all 5000 nodes once takes 1h23m20s: as long may a new node wait"
    ]
