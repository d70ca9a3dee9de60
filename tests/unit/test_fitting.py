"""Live views on terminals of three sizes: nothing is cut off, and what matters is always there."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console
from rich.text import Text

from ccm.cli.fitting import COMMENT, Column, Fitted, Rows
from ccm.cli.sandbox_view import hints, view
from ccm.cli.status_view import status_view
from ccm.model.conform import conform
from ccm.model.objects import Node
from ccm.model.status import Status
from ccm.sandbox.cloud.records import Power
from ccm.sandbox.components import SandboxEndpoints, SandboxPaths
from ccm.sandbox.observer import TimedNode
from ccm.sandbox.workload import WorkloadStatus
from tests.integration.status_page.statuses import (
    HEALTHY,
    group,
    status,
    troubled,
    with_problems,
    worker,
)

SIZES = ((80, 24), (120, 40), (200, 60))
WORKERS = [worker(name) for name in ("node-0", "node-1", "route", "service", "volume-label")]
CLASSES = dict.fromkeys(("read", "write"), HEALTHY["budget"]["read"])
every_size = pytest.mark.parametrize(("width", "height"), SIZES)


def lines(view: object, width: int, height: int) -> list[str]:
    """What the terminal shows, line by line; none is wider than it, and the cursor has its own."""
    console = Console(width=width, height=height)
    with console.capture() as shown:
        console.print(view)
    found = [line.rstrip() for line in shown.get().splitlines()]
    assert len(found) < height, "\n".join(found)
    assert max(map(len, found)) <= width
    return found


def node(number: int, is_ready: bool = True) -> TimedNode:
    raw = {
        "metadata": {
            "name": f"vm-{number}",
            "labels": {
                "topology.kubernetes.io/zone": "zone-b",
                "node.kubernetes.io/instance-type": "standard-4",
            },
        },
        "spec": {"providerID": f"simulated://m-{number:08}"},
        "status": {
            "addresses": [{"type": "InternalIP", "address": f"10.0.0.{number}"}],
            "conditions": [{"type": "Ready", "status": str(is_ready)}],
        },
    }
    return TimedNode(Node(raw), float(number), number + 0.1)


def sandbox(count: int) -> Any:
    nodes = {f"vm-{number}": node(number, number != 2) for number in range(1, count + 1)}
    return SimpleNamespace(
        endpoints=SandboxEndpoints(1, "", "", "https://127.0.0.1:40123/"),
        observer=SimpleNamespace(nodes=nodes, delays=lambda: [0.1] * count),
        power={},
        workload=WorkloadStatus(
            "192.0.2.7",
            frozenset(nodes),
            "zone-b",
            frozenset(nodes),
            power=dict.fromkeys(nodes, Power.RUNNING),
        ),
        paths=SandboxPaths(Path("/run/user/1000/ccm-sandbox-1000")),
    )


@every_size
@pytest.mark.parametrize("count", [0, 6, 200])
def test_story_and_what_to_try_are_always_there(
    count: int, width: int, height: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = [f"node worker after 0.{number} s: deleted Node vm-{number}" for number in range(12)]
    facts = conform(Status, status(workers=WORKERS, budget=CLASSES))
    shown = lines(view(cast(Any, sandbox(count)), facts, story), width, height)
    place = next(at for at, line in enumerate(shown) if line.startswith("Story, newest first"))
    assert shown[place + 1 : place + 4] == story[:-4:-1]
    place = next(at for at, line in enumerate(shown) if line.startswith("Try it there"))
    assert "sandbox add 20" in shown[place + 1]
    assert len(shown) - place >= 4
    text = "\n".join(shown)
    for name in ("node-1", "volume-label", "4711", "Service web", "read", "write"):
        assert name in text
    if count:
        (row,) = [at for at, line in enumerate(shown) if "not ready: kubelet is silent" in line]
        assert shown[row].startswith("vm-2 ")  # before all that are well
        assert shown[row + 1].startswith(f"vm-{count} ")  # what changed last


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 24), (40, 40)])
def test_all_that_can_be_tried_comes_in_turns(width: int, height: int) -> None:
    facts = conform(Status, status(workers=WORKERS, budget=CLASSES))
    place = sandbox(6)
    shown = [lines(view(place, facts, ["x"] * 9, turn=turn), width, height) for turn in range(20)]
    text = "".join("".join(map("".join, shown)).split())  # wherever a line was divided
    _, *commands = hints(place.endpoints, place.paths, place.workload.power)
    assert [one for one in commands if "".join(one.partition(COMMENT)[0].split()) not in text] == []
    assert "…" not in text


@pytest.mark.parametrize(
    ("power", "named"),
    [
        ({f"vm-{number}": Power.RUNNING for number in (1, 2, 10, 4, 3)}, {"vm-3", "vm-4"}),
        ({f"vm-{number}": Power.RUNNING for number in (1, 2, 3)}, {"vm-3"}),
        ({"vm-1": Power.RUNNING, "vm-2": Power.TERMINATED}, {"vm-1"}),
        ({"vm-1": Power.STOPPED, "vm-3": Power.TERMINATED, "vm-9": Power.STOPPED}, {"vm-9"}),
        ({"vm-1": Power.TERMINATED}, set()),
        ({}, set()),
    ],
)
def test_hints_name_machines_that_exist(power: dict[str, Power], named: set[str]) -> None:
    place = sandbox(0)
    text = " ".join(hints(place.endpoints, place.paths, power))
    assert set(re.findall(r"vm-\d+", text)) == named


def test_no_name_and_no_command_is_cut_on_a_narrow_terminal() -> None:
    story = [f"node worker after 0.{number} s: deleted Node vm-{number}" for number in range(3)]
    facts = conform(Status, status(workers=WORKERS, budget=CLASSES))
    text = " ".join(" ".join(lines(view(cast(Any, sandbox(6)), facts, story), 40, 90)).split())
    assert "…" not in text
    for whole in (*story, "sandbox machine stop vm-3", "volume-label running", "vm-6"):
        assert whole in text


@every_size
def test_the_status_that_is_watched_fits_with_all_its_troubles(width: int, height: int) -> None:
    facts = troubled()
    facts["workers"][0]["pending_groups"] += [
        group("waits " * 40, f"vm-{number}", is_failure=False) for number in range(25)
    ]
    facts["workers"] += [worker(f"node-{number}") for number in range(2, 64)]
    facts["budget"] = dict.fromkeys(map(str, range(9)), HEALTHY["budget"]["read"])
    shown = "\n".join(lines(Fitted(status_view(with_problems(facts))), width, height))
    for reported in ("is leader", "node-1", "--cloud-config: is not there", "vm-0", "Cloud budget"):
        assert reported in shown
    assert "Waiting (" in shown


def test_what_has_room_is_shown_whole() -> None:
    rows = [(str(number),) for number in range(9)]
    parts: list[Text | Rows] = [
        Text("head"),
        Rows("a", [Column("n")], rows),
        Rows("b", [Column("")], rows, brief="x"),
    ]
    assert lines(Fitted(parts), 40, 30)[1:3] == ["a", "n"]
    assert len(lines(Fitted(parts), 40, 30)) == 22
    short = lines(Fitted(parts), 40, 8)
    assert (short[1], short[-1]) == ("a (3 of 9)", "b: x")


def test_a_column_that_needs_room_is_left_out_where_there_is_none() -> None:
    rows = Rows("a", [Column("n"), Column("wide", from_width=100)], [("1", "2")])
    assert lines(Fitted([rows]), 99, 9)[1:] == ["n", "1"]
    assert lines(Fitted([rows]), 100, 9)[2].split() == ["1", "2"]


def test_a_comment_goes_before_its_command_is_cut() -> None:
    long = f"ccm-supervisor sandbox machine stop vm-3{COMMENT}then: start vm-3"
    shown = lines(Fitted([Rows("Try", [Column("")], [(long,), (f"ls{COMMENT}files",)])]), 45, 24)
    assert shown == ["Try", "ccm-supervisor sandbox machine stop vm-3", f"ls{COMMENT}files"]


def test_rows_that_do_not_fit_come_in_turns() -> None:
    commands = [(f"command {number}",) for number in range(8)]
    found = [
        lines(Fitted([Rows("Try", [Column("")], commands, turn=turn)]), 80, 5) for turn in range(4)
    ]
    assert found[0][0] == "Try (3 of 8)"
    assert found[2] == ["Try (7 to 8 of 8)", "command 6", "command 7"]
    assert {line for page in found for line in page[1:]} == {one for (one,) in commands}
    assert found[3][1:] == found[0][1:]
