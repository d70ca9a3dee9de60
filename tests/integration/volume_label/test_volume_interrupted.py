"""Whatever a volume is like and whenever the work is cut off, it ends labelled or untouched."""

from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.errors import KubernetesError
from ccm.model.cloud import Gone, VolumePlace
from ccm.model.objects import Json
from ccm.model.volume import PersistentVolume, read_zones
from tests.support.cluster import patched
from tests.support.nodes import Tweak, recreated
from tests.support.properties import examples
from workers.volume_label.plan import (
    LabelRules,
    SetLabels,
    admits,
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
)

ZONES, REGIONS = "abc", ["", "north", "south"]
some_zones = st.lists(st.sampled_from(ZONES), max_size=3)
expressions = st.builds(
    requirement,
    st.sampled_from([ZONE, OLD_ZONE, REGION, "topology.driver.example/zone", "disk"]),
    st.sampled_from(["In", "NotIn", "Exists"]),
    st.sampled_from([*ZONES, "north"]),
)
affinities = st.lists(st.lists(expressions, max_size=2), max_size=2).map(
    lambda found: with_affinity(terms(*found))
)
zone_labels = st.sampled_from(["", "a", "b", "a__b", "a__b__c", "a__"])
labels = st.builds(
    lambda key, value: labelled(**{key: value}), st.sampled_from(["zone", "old_zone"]), zone_labels
) | st.builds(
    lambda key, value: labelled(**{key: value}),
    st.sampled_from(["region", "old_region", "other"]),
    st.sampled_from(REGIONS),
)
plain = st.sampled_from([with_empty_labels, deleted, waiting(), waiting("other"), of_driver("x")])
tweaks: st.SearchStrategy[list[Tweak]] = st.lists(affinities | labels | plain, max_size=5)
answers = st.builds(
    lambda zones, region: place(*zones, region=region), some_zones, st.sampled_from(REGIONS)
)
rules_of_both_kinds = st.sampled_from([RULES, WITH_LEGACY])


def written(before: PersistentVolume, answer: VolumePlace | Gone, rules: LabelRules) -> Json | None:
    """The object after the one write; None when none is made."""
    if why_left_alone(before, rules):
        return None
    step = plan(before, answer, rules)
    if not isinstance(step, SetLabels):
        return None
    return patched(before.raw, patch_for(before, step).operations)


def allowed(raw: Json) -> set[tuple[str, str]]:
    """Where Pods with this volume may run, by all its labels and its affinity."""
    found = PersistentVolume(raw)
    zones, regions = {*ZONES}, {"north", "south"}
    for key in (ZONE, OLD_ZONE):
        if value := found.labels.get(key):
            zones &= read_zones(value)
    for key in (REGION, OLD_REGION):
        if value := found.labels.get(key):
            regions &= {value}
    return {(z, r) for z in zones for r in regions if admits(found.node_affinity, z, r)}


@examples(300)
@given(tweaks, answers, rules_of_both_kinds)
def test_one_write_is_all(some: list[Tweak], answer: VolumePlace, rules: LabelRules) -> None:
    """Cut off before the write, the same one is planned; after it, none ever again."""
    before = volume(*some)
    untouched = deepcopy(before.raw)
    after = written(before, answer, rules)
    assert before.raw == untouched
    assert after == written(PersistentVolume(deepcopy(before.raw)), answer, rules)
    if after is not None:
        assert written(PersistentVolume(after), answer, rules) is None


@examples(300)
@given(tweaks, answers, rules_of_both_kinds)
def test_a_write_leaves_pods_a_place_and_only_where_the_volume_is(
    some: list[Tweak], answer: VolumePlace, rules: LabelRules
) -> None:
    before = volume(*some)
    after = written(before, answer, rules)
    if after is None:
        return
    places = allowed(after)
    assert {zone for zone, _ in places} <= set(answer.zones)
    if answer.region:  # else what others ask of the region cannot be judged
        assert answer.region in {region for _, region in places}


@examples(300)
@given(tweaks, answers, rules_of_both_kinds)
def test_nothing_that_was_there_is_changed(
    some: list[Tweak], answer: VolumePlace, rules: LabelRules
) -> None:
    before = volume(*some)
    after = written(before, answer, rules)
    if after is None:
        return
    found = PersistentVolume(after)
    assert not before.is_being_deleted
    assert {k: v for k, v in before.labels.items() if v}.items() <= found.labels.items()
    assert all(found.labels[key] for key in found.labels.keys() - before.labels.keys())
    assert before.node_affinity in (None, found.node_affinity)
    assert not found.waits_for_labels
    others = [one for one in before.initializers if one["name"] == "other"]
    assert found.initializers == others


@pytest.mark.parametrize(
    "meanwhile",
    [
        pytest.param([recreated], id="recreated"),
        pytest.param([deleted], id="deleted"),
        pytest.param([labelled(zone="z")], id="another-zone-was-set"),
        pytest.param([labelled(old_zone="z")], id="another-legacy-zone-was-set"),
        pytest.param([labelled(region="z")], id="another-region-was-set"),
        pytest.param([in_zones("z")], id="an-affinity-was-set"),
        pytest.param([waiting("other")], id="an-initializer-was-added"),
    ],
)
@pytest.mark.parametrize("first", [[], [labelled(other="x")], [labelled(region="north")]])
def test_a_write_planned_against_another_state_is_refused(
    first: list[Tweak], meanwhile: list[Tweak]
) -> None:
    before = volume(*first, waiting())
    step = plan(before, place("a"), RULES)
    assert isinstance(step, SetLabels)
    operations = patch_for(before, step).operations
    with pytest.raises(KubernetesError) as refusal:
        patched(volume(*first, waiting(), *meanwhile).raw, operations)
    assert refusal.value.status == 422


def test_what_others_write_meanwhile_does_not_disturb_a_write() -> None:
    before = volume(labelled(other="x"))
    step = plan(before, place("a"), RULES)
    assert isinstance(step, SetLabels)
    bound = volume(labelled(other="y", another="z"))
    bound.raw["spec"]["claimRef"] = {"name": "claim"}
    after = PersistentVolume(patched(bound.raw, patch_for(before, step).operations))
    assert (after.labels["other"], after.labels["another"]) == ("y", "z")
    assert after.spec["claimRef"] == {"name": "claim"}
