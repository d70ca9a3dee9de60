"""What a worker may send that is not a round."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ccm.bus.frames import ProposeDeletions

from .site import Site, names

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=12,
)
ALMOST = st.lists(
    st.tuples(
        st.sampled_from(["n0", "n1", "", 3, None]),
        st.sampled_from(["u0", "u1", "", None]),
        st.text(max_size=2) | st.none(),
        st.floats() | st.integers() | st.just("1000") | st.booleans(),
    ).map(list),
    max_size=3,
)


@given(st.lists(st.tuples(ANYTHING, ANYTHING | ALMOST, ANYTHING), max_size=6))
@settings(max_examples=100, deadline=None)
def test_nonsense_from_a_worker_neither_deletes_nor_hurts(
    messages: list[tuple[Any, Any, Any]],
) -> None:
    with TemporaryDirectory() as place:
        site = Site(Path(place) / "deletions.json").fill(3).kill(*names(3))
        for message in messages:  # the clock stands still: nothing can be confirmed
            assert site.governor.on_message("node-0.1", ProposeDeletions(*message)).nodes == []
        site.status()
