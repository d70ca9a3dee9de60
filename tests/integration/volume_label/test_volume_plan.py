"""What is planned for a volume, given what the cloud says."""

from dataclasses import replace

import pytest

from ccm.model.cloud import Gone, VolumePlace
from ccm.model.objects import expect, label_path
from tests.support.nodes import Tweak
from workers.volume_label.plan import (
    Done,
    LabelRules,
    Reject,
    SetLabels,
    patch_for,
    plan,
    why_left_alone,
)

from .volumes import (
    OLD_REGION,
    OLD_ZONE,
    REGION,
    RULES,
    WITH_LEGACY,
    ZONE,
    deleted,
    in_zones,
    labelled,
    of_driver,
    place,
    requirement,
    terms,
    volume,
    waiting,
    with_affinity,
    with_empty_labels,
    with_source,
)

COMPLETE = labelled(zone="a", region="north")
BOTH = {ZONE: "a", REGION: "north"}
ALL_FOUR = {**BOTH, OLD_ZONE: "a", OLD_REGION: "north"}
ELSEWHERE = in_zones("z")
IN_NORTH = requirement(REGION, "In", "north")
AFFINITY_A = terms([requirement(ZONE, "In", "a"), IN_NORTH])
AFFINITY_AB = terms([requirement(ZONE, "In", "a", "b"), IN_NORTH])


@pytest.mark.parametrize(
    ("tweaks", "rules", "expected"),
    [
        pytest.param([], RULES, None, id="a-csi-volume-of-ours"),
        pytest.param([of_driver("other.csi.example")], RULES, "not a volume", id="another-driver"),
        pytest.param([of_driver("other"), waiting()], RULES, "not a volume", id="and-waiting"),
        pytest.param([of_driver("")], RULES, "not a volume", id="no-driver"),
        pytest.param([with_source("cinder", volumeID="v")], RULES, None, id="a-legacy-source"),
        pytest.param([with_source("nfs", path="/")], RULES, "not a volume", id="another-source"),
        pytest.param([with_source("azureDisk")], RULES, "not a volume", id="another-clouds-source"),
        pytest.param([deleted], RULES, "being deleted", id="deleted"),
        pytest.param([deleted, waiting()], RULES, "being deleted", id="deleted-and-waiting"),
        pytest.param([COMPLETE, ELSEWHERE], RULES, "labelled", id="labels-and-affinity"),
        pytest.param([COMPLETE], RULES, None, id="labels-without-affinity"),
        pytest.param([ELSEWHERE], RULES, None, id="affinity-without-labels"),
        pytest.param([COMPLETE, labelled(region=""), ELSEWHERE], RULES, None, id="empty-label"),
        pytest.param([COMPLETE, ELSEWHERE], WITH_LEGACY, None, id="without-legacy-labels"),
        pytest.param([COMPLETE, ELSEWHERE, waiting()], RULES, None, id="with-our-initializer"),
    ],
)
def test_the_cloud_is_asked_only_about_volumes_of_ours_that_lack_something(
    tweaks: list[Tweak], rules: LabelRules, expected: str | None
) -> None:
    why = why_left_alone(volume(*tweaks), rules)
    assert (expected in why) if expected and why else (why == expected)


@pytest.mark.parametrize(
    ("tweaks", "answer", "rules", "expected"),
    [
        pytest.param([], place("a"), RULES, SetLabels(BOTH, AFFINITY_A), id="a-new-volume"),
        pytest.param(
            [], place("a"), WITH_LEGACY, SetLabels(ALL_FOUR, AFFINITY_A), id="legacy-labels"
        ),
        pytest.param(
            [],
            place("b", "", "a", "b"),
            RULES,
            SetLabels({ZONE: "a__b", REGION: "north"}, AFFINITY_AB),
            id="several-zones",
        ),
        pytest.param(
            [],
            place("a", region=""),
            RULES,
            SetLabels({ZONE: "a"}, terms([requirement(ZONE, "In", "a")])),
            id="a-region-that-is-not-known-is-not-written",
        ),
        pytest.param(
            [with_empty_labels], place("a"), RULES, SetLabels(BOTH, AFFINITY_A), id="no-label"
        ),
        pytest.param(
            [labelled(zone="", region="")],
            place("a"),
            RULES,
            SetLabels(BOTH, AFFINITY_A),
            id="empty-labels-are-missing-labels",
        ),
        pytest.param(
            [labelled(zone="a")],
            place("a"),
            RULES,
            SetLabels({REGION: "north"}, AFFINITY_A),
            id="a-label-that-is-right-stays",
        ),
        pytest.param(
            [labelled(zone="b__a")],
            place("a", "b"),
            RULES,
            SetLabels({REGION: "north"}, AFFINITY_AB),
            id="zones-in-another-order-are-right",
        ),
        pytest.param(
            [labelled(zone="a", other="x")],
            place("a", "b"),
            WITH_LEGACY,
            SetLabels({REGION: "north", OLD_ZONE: "a", OLD_REGION: "north"}, AFFINITY_AB),
            id="a-narrower-label-stays-and-the-others-follow-it",
        ),
        pytest.param(
            [labelled(old_zone="a")],
            place("a", "b"),
            RULES,
            SetLabels(BOTH, AFFINITY_AB),
            id="a-legacy-label-counts-without-the-flag",
        ),
        pytest.param([COMPLETE], place("a"), RULES, SetLabels({}, AFFINITY_A), id="only-affinity"),
        pytest.param(
            [COMPLETE, in_zones("a"), waiting()],
            place("a"),
            RULES,
            SetLabels({}, None),
            id="only-the-initializer",
        ),
        pytest.param([in_zones("a")], place("a"), RULES, SetLabels(BOTH, None), id="only-labels"),
        pytest.param(
            [in_zones("a", "z")],
            place("a", "b"),
            RULES,
            SetLabels(BOTH, None),
            id="labels-name-only-zones-that-the-affinity-admits",
        ),
        pytest.param(
            [in_zones("a", "b", "c", key=OLD_ZONE)],
            place("a", "b"),
            RULES,
            SetLabels({ZONE: "a__b", REGION: "north"}, None),
            id="all-of-them-by-its-old-key",
        ),
        pytest.param(
            [in_zones("a", key="topology.driver.example/zone")],
            place("a"),
            RULES,
            SetLabels(BOTH, None),
            id="an-affinity-with-the-drivers-own-key",
        ),
        pytest.param(
            [with_affinity({})],
            place("a"),
            RULES,
            SetLabels(BOTH, None),
            id="an-affinity-of-nothing",
        ),
        pytest.param(
            [with_affinity(terms([IN_NORTH]))],
            place("a"),
            RULES,
            SetLabels(BOTH, None),
            id="an-affinity-for-its-region",
        ),
        pytest.param(
            [in_zones("a")],
            place(),
            replace(RULES, has_zones=False),
            SetLabels({REGION: "north"}, None),
            id="an-affinity-for-a-zone-of-a-cloud-without",
        ),
        pytest.param(
            [labelled(zone="a"), in_zones("a")],
            place("a", region=""),
            RULES,
            Done("labelled"),
            id="nothing-is-missing-that-the-cloud-knows",
        ),
    ],
)
def test_what_is_written(
    tweaks: list[Tweak], answer: VolumePlace, rules: LabelRules, expected: SetLabels | Done
) -> None:
    assert plan(volume(*tweaks), answer, rules) == expected


MAY_PASS = ("VolumeNotFound", "ZoneNotFound")
"""The others wait for a change of the volume."""


@pytest.mark.parametrize(
    ("tweaks", "answer", "reason", "words"),
    [
        pytest.param([], Gone("404"), "VolumeNotFound", "404", id="no-such-volume"),
        pytest.param([], Gone("404"), "VolumeNotFound", "If another account has it", id="MC61"),
        pytest.param([], place(), "ZoneNotFound", "by hand", id="no-zone"),
        pytest.param([], place("", ""), "ZoneNotFound", "by hand", id="empty-zones"),
        pytest.param(
            [in_zones("z")],
            place("a", "b"),
            "NodeAffinityConflict",
            "a, b of region north",
            id="affinity-elsewhere",
        ),
        pytest.param(
            [with_affinity(terms([requirement(REGION, "In", "south")]))],
            place("a"),
            "NodeAffinityConflict",
            "cannot be changed",
            id="affinity-for-another-region",
        ),
        pytest.param(
            [labelled(zone="z")],
            place("a"),
            "LabelConflict",
            f"used in a and is labelled {ZONE}=z",
            id="another-zone",
        ),
        pytest.param(
            [labelled(old_zone="z")],
            place("a"),
            "LabelConflict",
            f"{OLD_ZONE}=z",
            id="another-legacy-zone",
        ),
        pytest.param(
            [labelled(region="south")],
            place("a"),
            "LabelConflict",
            f"used in north and is labelled {REGION}=south",
            id="another-region",
        ),
        pytest.param(
            [labelled(zone="a", old_zone="b")],
            place("a", "b"),
            "LabelConflict",
            f"{ZONE}=a and {OLD_ZONE}=b",
            id="labels-against-each-other",
        ),
        pytest.param(
            [labelled(zone="b"), in_zones("a")],
            place("a", "b"),
            "LabelConflict",
            "used in a and",
            id="a-label-against-the-affinity",
        ),
        pytest.param(
            [labelled(zone="a__z")],
            place("a"),
            "LabelConflict",
            "a__z",
            id="a-zone-too-many",
        ),
        pytest.param([labelled(zone="a__")], place("a"), "LabelConflict", "a__", id="half-a-label"),
        pytest.param([], place("a b"), "LabelImpossible", "'a b'", id="a-zone-that-is-no-label"),
        pytest.param([], place("a", "b c"), "LabelImpossible", "'b c' cannot", id="one-of-several"),
        pytest.param(
            [ELSEWHERE],
            place("a", region=""),
            "NodeAffinityConflict",
            "in a, and spec.nodeAffinity",
            id="affinity-elsewhere-in-an-unknown-region",
        ),
        pytest.param([], place("a", region="Norð"), "LabelImpossible", "Norð", id="nor-a-region"),
        pytest.param(
            [],
            place("x" * 31, "y" * 31),
            "LabelImpossible",
            f"'{'x' * 31}__{'y' * 31}'",
            id="zones-that-fit-no-label-together",
        ),
    ],
)
def test_which_event_is_recorded_instead(
    tweaks: list[Tweak], answer: VolumePlace | Gone, reason: str, words: str
) -> None:
    step = plan(volume(*tweaks), answer, RULES)
    assert isinstance(step, Reject)
    assert (step.reason, step.may_pass) == (reason, reason in MAY_PASS)
    assert words in step.message


def test_a_write_tests_what_it_replaces() -> None:
    of = volume(labelled(zone="", region="north"), in_zones("a"), waiting())
    patch = patch_for(of, SetLabels({ZONE: "a"}, None))
    assert patch.path == f"/api/v1/persistentvolumes/{of.name}"
    assert expect(label_path(ZONE), "") in patch.operations
    assert patch.operations[-2:] == (
        expect("/metadata/initializers/pending", of.initializers),
        {"op": "remove", "path": "/metadata/initializers"},
    )


def test_a_label_of_63_characters_fits() -> None:
    step = plan(volume(), place("x" * 31, "y" * 30), RULES)
    assert isinstance(step, SetLabels)
    assert len(step.labels[ZONE]) == 63
