"""Which worker owns a key."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.supervisor.delivery import owner

KEYS = [f"node-{number}.example.internal" for number in range(5000)]


def shards(count: int) -> list[str]:
    return [f"node-{number}" for number in range(count)]


@given(st.text(), st.integers(1, 20), st.randoms(use_true_random=False))
def test_the_owner_does_not_depend_on_the_order_of_the_shards(
    key: str, count: int, random: Random
) -> None:
    shuffled = shards(count)
    random.shuffle(shuffled)
    assert owner(key, shuffled) == owner(key, shards(count))


def test_the_owner_is_the_same_in_every_version_and_on_every_host() -> None:
    # Replicas of two versions run side by side in a rolling update: this must not change.
    owners = [owner(key, shards(4)) for key in ("a", "b", "c", "node-1")]
    assert owners == ["node-2", "node-3", "node-1", "node-0"]


@pytest.mark.parametrize("count", [2, 3, 4, 8, 16])
def test_shards_own_even_shares(count: int) -> None:
    owned = Counter(owner(key, shards(count)) for key in KEYS)
    fair = len(KEYS) / count
    assert len(owned) == count
    assert all(0.8 * fair < share < 1.2 * fair for share in owned.values())


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_only_the_keys_of_a_new_shard_move(count: int) -> None:
    moved = [key for key in KEYS if owner(key, shards(count)) != owner(key, shards(count + 1))]
    assert all(owner(key, shards(count + 1)) == f"node-{count}" for key in moved)
    assert len(moved) < 1.25 * len(KEYS) / (count + 1)
