"""What checks make of flags and of this machine."""

from dataclasses import replace

import pytest

from ccm.checks.host import flags, open_files
from ccm.settings import Settings
from ccm.settings import flags as declared
from ccm.settings.given import Given
from tests.check.row import states


@pytest.mark.parametrize(
    ("limit", "serves", "state"),
    [(1024, True, "ok"), (200, True, "failed"), (200, False, "ok"), (-1, True, "ok")],
)
def test_open_files_are_counted(limit: int, serves: bool, state: str) -> None:
    assert states(open_files.judge(open_files.Facts(limit, 32, 4, serves))) == [state]


def told(settings: Settings, *given: str) -> list[str]:
    """What is seen in settings whose fields `given` somebody wrote."""
    facts = flags.Facts(settings, {name: Given(("",)) for name in given})
    return [found.seen for found in flags.judge(facts) if found.remedy]


QUIET = Settings(cluster_cidr=("10.0.0.0/8",))


@pytest.mark.parametrize(
    ("settings", "given", "word"),
    [
        (QUIET, ("allocate_node_cidrs",), ""),  # written, and as it is anyway
        (replace(QUIET, allocate_node_cidrs=True), ("allocate_node_cidrs",), "has no effect"),
        (replace(QUIET, allow_untagged_cloud=True), ("allow_untagged_cloud",), "is deprecated"),
        (replace(QUIET, controllers=("*", "-node-route-controller")), (), ""),
        (
            replace(QUIET, controllers=("*", "-node-route-controller")),
            ("cluster_cidr",),
            "--cluster-cidr=10.0.0.0/8 has no effect: --controllers turns node-route-controller",
        ),
        (Settings(configure_cloud_routes=False), (), ""),
        (replace(QUIET, leader_elect=False, leader_elect_lease_duration=10.5), (), ""),
        (replace(QUIET, concurrent_node_syncs=64), (), "--kube-api-in-flight=32 lets through"),
        (replace(QUIET, concurrent_node_syncs=64, kube_api_in_flight=64), (), ""),
        (replace(QUIET, kube_api_burst=30, kube_api_qps=20.0), (), ""),
    ],
)
def test_flags_are_told_of_only_when_they_do_not_do_what_they_say(
    settings: Settings, given: tuple[str, ...], word: str
) -> None:
    seen = told(settings, *given)
    assert len(seen) == bool(word)
    assert all(word in each for each in seen)


def test_every_flag_that_needs_a_controller_is_a_flag() -> None:
    assert flags.NEEDS.keys() <= {flag.field for flag in declared()}
