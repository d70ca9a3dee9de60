"""Which counts fail `make bench-smoke`, and so CI: a gate that lets all through is none.

The one other promise of the bench is that its published page is what it measured.
"""

import pytest

from bench import results
from bench.figures import Row
from bench.parts import heartbeats
from bench.parts.initialise import Run, wrong_counts
from bench.plan import Plan
from workers.timings import Timings

PLAN = Plan(page=20)
NODES = 100  # five pages


def run(reads: int = 5, nodes: int = NODES, status: int = NODES, coming: float = 0.0) -> Run:
    """`coming` are the seconds in which nodes were created; none are counted of a cold start."""
    writes = {"nodes": nodes, "nodes/status": status, "events": 3}
    return Run(1.0, 0.5, total=coming and 1.0 + coming, reads=reads, writes=writes)


def wrong(*runs: Run) -> list[str]:
    return wrong_counts(PLAN, NODES, "cold", [*runs])


def test_two_writes_a_node_and_a_read_a_page_are_right() -> None:
    assert wrong(run(), run(reads=1), run(reads=6)) == []


@pytest.mark.parametrize(("nodes", "status"), [(200, 100), (100, 200), (99, 100), (100, 0)])
def test_a_write_too_many_or_too_few_is_reported(nodes: int, status: int) -> None:
    [line] = wrong(run(), run(nodes=nodes, status=status), run())
    assert line.startswith(f"cold: {NODES} nodes were initialised with ")
    assert str({"nodes": nodes, "nodes/status": status}) in line


def test_no_writes_at_all_are_wrong_and_so_are_writes_of_anything_else() -> None:
    assert len(wrong(Run(1.0, 0.1, reads=1))) == 1
    stray = run()
    stray.writes["services/status"] = 1
    assert wrong(stray) == [
        "cold: 100 nodes were initialised with "
        "{'nodes': 100, 'nodes/status': 100, 'services/status': 1} writes"
    ]


@pytest.mark.parametrize("reads", [7, NODES])
def test_a_read_too_many_is_reported_with_what_is_allowed(reads: int) -> None:
    assert wrong(run(reads=reads)) == [f"cold: {reads} cloud reads for 100 nodes, 6 allowed"]


def test_nodes_that_arrive_may_cost_a_read_for_each_batch_that_could_not_wait() -> None:
    """And for the first one alone, for one batch that left in a lull, for those that double."""
    assert wrong(run(reads=12 + 8, coming=8 * Timings().batch.interval)) == []
    assert len(wrong(run(reads=12 + 9, coming=8 * Timings().batch.interval))) == 1


@pytest.mark.parametrize(("column", "count"), [("frames", 4), ("writes", 4), ("cloud calls", 3)])
def test_what_heartbeats_cost_beyond_the_refresh_is_reported(column: str, count: int) -> None:
    row: Row = {"frames": 0, "writes": 0, "cloud calls": 1, "of them refresh": 1}
    assert heartbeats.wrong_counts(row) == []
    assert heartbeats.wrong_counts({**row, column: count}) == [f"heartbeats made {count} {column}"]


def test_the_published_page_is_what_was_measured() -> None:
    assert results.PAGE.read_text() == results.page(results.recorded())
