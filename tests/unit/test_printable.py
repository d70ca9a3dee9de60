"""Nothing that others chose (names, provider IDs, messages) commands the operator's terminal."""

import logging
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest
from click.testing import CliRunner
from rich.console import ConsoleDimensions

from ccm.checks.finding import warning
from ccm.checks.run import CheckResult
from ccm.cli import sandbox_view
from ccm.cli.main import main
from ccm.cli.reporting import terminal
from ccm.decide.orphans import Orphan
from ccm.dry_run.cluster import Change
from ccm.dry_run.plan import Plan
from ccm.errors import CloudError
from ccm.log import _Line
from ccm.model.conform import conform
from ccm.model.objects import Node
from ccm.model.status import Status
from ccm.printable import printable, printable_json, printable_values
from ccm.sandbox.components import SandboxEndpoints, SandboxPaths
from ccm.sandbox.observer import TimedNode
from ccm.sandbox.workload import WorkloadStatus
from tests.integration.status_page.statuses import troubled, with_named, with_problems

HOSTILE = "\x1b[2J\x1b]0;t\x07\x9b31m\u202e\x7f\r\nforged [red]mark[/]:bomb:"
BOLD = re.compile(r"\x1b\[[01]m")

DELETIONS: dict[str, Any] = {
    "standby": HOSTILE,
    "frozen": {"why": HOSTILE, "by": HOSTILE, "at": HOSTILE},
    "last_error": HOSTILE,
    "held": HOSTILE,
    "held_seconds": 1.0,
    "counts": {"proposed": 1, "permitted": 0},
    "budget": {
        "left": 1,
        "limit": 2,
        "window_seconds": 60.0,
        "spent": [{"node": HOSTILE, "times": 1}],
    },
    "candidates": [{"node": HOSTILE, "verdict": HOSTILE, "reason": HOSTILE, "seconds": 1.0}],
    "more_candidates": 0,
}
EXPLANATION: dict[str, Any] = {
    "kind": "node",
    "name": HOSTILE,
    "workers": [
        {"worker": "node-0", "state": "running", "decided": HOSTILE, "quarantined": HOSTILE}
        | {"details": {"provider ID": HOSTILE, HOSTILE: "x"}}
    ],
    "deletion": {"verdict": HOSTILE, "reason": HOSTILE, "meaning": HOSTILE, "remedy": HOSTILE},
}
ANSWERS: dict[str, dict[str, Any]] = {
    "status": with_problems(with_named(troubled(), HOSTILE)),
    "explain": EXPLANATION,
    "deletions": DELETIONS | {"ok": HOSTILE},
}
PLAN = Plan(
    [Change("Node", HOSTILE, HOSTILE, None, {"a": HOSTILE}), Change("Node", HOSTILE, "", 1, None)],
    [
        {
            "does": "create",
            "call": HOSTILE,
            "about": HOSTILE,
            "ports": [HOSTILE],
            "nodes": [HOSTILE],
        }
    ],
    [HOSTILE],
    {HOSTILE: HOSTILE},
    {"cloud_reads": 4},
    is_complete=True,
)
MACHINE = SimpleNamespace(name=HOSTILE, id=HOSTILE, power=HOSTILE, zone=HOSTILE, addresses=[])
ORPHANS = "orphans list --cloud-provider=simulated"
COMMANDS = [
    *(["deletions", *more] for more in ([], ["freeze"], ["allow"])),
    *(["explain", "node", "vm-1", *more] for more in ([], ["-o", "json"], ["-o", "yaml"])),
    *(["status", *more] for more in ([], ["-o", "json"], ["-o", "yaml"])),
    *(["plan", *more] for more in ([], ["-o", "json"], ["-o", "yaml"])),
    *([*ORPHANS.split(), *more] for more in ([], ["-o", "json"], ["-o", "yaml"])),
    *(
        ["check", "--cloud-provider=simulated", *more]
        for more in ([], ["-o", "json"], ["-o", "yaml"])
    ),
    ["reload"],
    ["restart", "node-0", "--no-wait"],
    ["sandbox", "machine", "list"],
    ["sandbox", "add", "1"],
    ["sandbox", "counters"],
    ["scale", "node", "2"],
    ["stop", "--no-wait"],
]


def giving(value: object) -> Callable[..., Any]:
    async def give(*_: object, **__: object) -> object:
        return value

    return give


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Supervisor, cluster and cloud say what a hostile kubelet, tenant or machine chose."""

    def ask(_: Path, request: dict[str, Any], __: float) -> dict[str, Any]:
        return ANSWERS.get(request["command"], {"ok": HOSTILE})

    async def from_cloud(_: object, act: Callable[[Any], Any]) -> object:
        async def machines() -> list[object]:
            return [MACHINE]

        return await act(SimpleNamespace(machines=machines, counters=giving({HOSTILE: HOSTILE})))

    results = [CheckResult("machines", 0.0, (warning(HOSTILE, HOSTILE),))]
    monkeypatch.setattr("ccm.cli.operate.ask", ask)
    monkeypatch.setattr("ccm.cli.plan._dry_run", giving(PLAN))
    monkeypatch.setattr("ccm.cli.orphans._find", giving([Orphan("route", HOSTILE, HOSTILE)]))
    monkeypatch.setattr("ccm.checks.run.run_checks", giving(results))
    monkeypatch.setattr("ccm.cli.sandbox._with_cloud", from_cloud)
    monkeypatch.setattr("ccm.cli.sandbox._add", giving([HOSTILE]))


def assert_harmless(said: str) -> None:
    lines = BOLD.sub("", said).split("\n")
    assert all(line.isprintable() for line in lines)
    assert not any(line.startswith("forged") for line in lines)
    assert "mark" in said


@pytest.mark.usefixtures("hostile")
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_command_passes_terminal_escapes_on(words: list[str]) -> None:
    done = CliRunner().invoke(main, words, color=True)
    assert not isinstance(done.exception, Exception), done.exception
    assert_harmless(done.output)


@pytest.mark.usefixtures("hostile")
@pytest.mark.parametrize("command", ["status", "explain node vm-1", "plan", ORPHANS])
def test_json_keeps_the_value(command: str) -> None:
    done = CliRunner().invoke(main, [*command.split(), "-o", "json"])
    assert any(HOSTILE in text for text in str_values(orjson.loads(done.stdout)))


def str_values(value: object) -> list[str]:
    match value:
        case dict():
            return [text for item in value.values() for text in str_values(item)]
        case list():
            return [text for item in value for text in str_values(item)]
        case str():
            return [value]
    return []


def test_an_error_that_ends_a_command_is_printable(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*_: object) -> None:
        raise CloudError(HOSTILE)

    monkeypatch.setattr("ccm.cli.plan._dry_run", fails)
    assert_harmless(CliRunner().invoke(main, ["plan"], color=True).stderr)


def test_the_table_of_a_sandbox_shows_escapes_and_markup_as_they_are() -> None:
    node = Node(
        {
            "metadata": {"name": HOSTILE, "labels": {"topology.kubernetes.io/zone": HOSTILE}},
            "spec": {"providerID": HOSTILE},
            "status": {"addresses": [{"type": "InternalIP", "address": HOSTILE}]},
        }
    )
    sandbox = SimpleNamespace(
        observer=SimpleNamespace(delays=list, nodes={HOSTILE: TimedNode(node, 0.0)}),
        power={HOSTILE: HOSTILE},
        workload=WorkloadStatus(service_address=HOSTILE, volume_zone=HOSTILE),
        paths=SandboxPaths(Path("/tmp/s")),
        endpoints=SandboxEndpoints(1, "", "", "https://127.0.0.1:40123/"),
    )
    console = terminal()
    console.size = ConsoleDimensions(1000, 100)
    with console.capture() as shown:
        status = conform(Status, ANSWERS["status"])
        console.print(sandbox_view.view(cast(Any, sandbox), status, [HOSTILE]))
    assert_harmless(shown.get())
    assert shown.get().count(printable(HOSTILE)) >= 8  # with its markup and emoji code


@pytest.mark.parametrize("as_json", [True, False])
def test_a_log_line_is_printable(as_json: bool) -> None:
    record = logging.makeLogRecord({"msg": HOSTILE, "node": HOSTILE, "bare": "\x1b[2J\x9bx"})
    assert_harmless(_Line("node-0", as_json).format(record))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ünïcode 日本", "plain ünïcode 日本"),
        ("a\x1b[1mb", r"a\x1b[1mb"),
        ("one\ntwo\u2028", r"one\ntwo\u2028"),
        ("\udcff", r"\udcff"),
    ],
)
def test_what_cannot_be_printed_is_written_as_python_would(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable_values({text: [text, 1, None]}) == {shown: [shown, 1, None]}


def test_json_is_the_same_value_whatever_is_in_it() -> None:
    value = {"a": "\x9b\x7f\u202e\U000e0001 ü", "b": ["\n"]}
    said = printable_json(value, orjson.OPT_INDENT_2)
    assert orjson.loads(said) == value
    assert all(line.isprintable() for line in said.split("\n"))
