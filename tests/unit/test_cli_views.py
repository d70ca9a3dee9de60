"""What `ccm-supervisor status` and `plan` show."""

from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from ccm.bus.control import NotRunning
from ccm.cli.fitting import Whole
from ccm.cli.main import main
from ccm.cli.status_view import status_view
from ccm.dry_run.plan import Plan
from ccm.errors import ExitCode
from tests.integration.status_page.statuses import group, problems_of, status, with_problems, worker


def shown(**changes: Any) -> str:
    console = Console(width=120)
    with console.capture() as text:
        console.print(Whole(status_view(with_problems(status(**changes)))))
    return text.get()


def test_the_faults_of_a_worker_that_refuses_to_start() -> None:
    refuses = worker(
        "node-0", state="failed", pid=None, faults=["--cloud-config: [Global] ulr is unknown"]
    )
    also = refuses | {"name": "route"}
    assert shown(workers=[refuses, also], failing_checks={"route": "worker is failed"}).startswith(
        "critical: --cloud-config: [Global] ulr is unknown. Refused to start: node-0, route.\n"
        "Symptoms, commands, and other problems\n"
        "  route: worker is failed.\n"
    )


def test_why_a_worker_is_skipped() -> None:
    why = "--configure-cloud-routes is false"
    skipped = status(workers=[worker("route", state="skipped", faults=[why])])
    assert shown(**skipped).count(why) == 1
    assert f"route is skipped: {why}" in shown(**skipped)
    assert not [*problems_of(skipped)]


def test_the_failure_of_a_watch() -> None:
    broken, well = {"last_error": "403 Forbidden"}, {"last_error": ""}
    kinds = {"Node": broken, "Service": well, "PersistentVolume": broken}
    text = (
        "critical: The API server cannot be watched: 403 Forbidden. Kinds: Node, PersistentVolume."
    )
    assert text in shown(informer={"kinds": kinds})


def test_an_outage_is_the_first_line_and_has_its_symptoms() -> None:
    """CT10: one cause, each Node once, whatever workers wait for it and in whatever words."""
    outage = {"cloud_outage": {"seconds": 125, "why": "ListMachines: 503 no answer"}}
    nodes = ("vm-7", "vm-8", "vm-9", "vm-10")
    facts = status(
        workers=[
            worker(
                "node-0",
                **outage,
                pending_groups=[group("ListMachines: 503 no answer", *nodes[:2])],
            ),
            worker(
                "node-1",
                **outage,
                pending_groups=[group("ListMachines: 503 no answer", *nodes[2:])],
            ),
            worker(
                "service",
                pending_groups=[
                    group("ListLoadBalancers: 503 no answer", "default/web", seconds=3.0),
                    group("rejected until it changes: no ports", "default/odd"),
                ],
            ),
            worker(
                "route",
                **outage,
                pending_groups=[
                    group("ListRoutes: connection refused", "vm-1"),
                    group("waits for its provider ID", *nodes, is_failure=False),
                ],
            ),
        ],
        uninitialized_nodes={"count": 4, "first": dict.fromkeys(nodes, 125.0)},
    )
    said = " ".join(shown(**facts).split())
    assert said.startswith(
        "critical: Every read of the cloud has failed for 2m5s: 503 no answer."
        " Waiting: 4 Nodes (vm-7, vm-8, vm-9, …) and 1 Service (default/web)."
        " Symptoms, commands, and other problems"
        " route: connection refused. route: 4 Nodes pending: waits for its provider ID."
        " 4 Nodes not initialized, one for 2m5s. ccm-supervisor explain node vm-7"
        " warning: rejected until it changes: no ports. Failing for 1m30s: 1 Service (default/odd)."
        " ccm-supervisor explain service default/odd ccm-supervisor 1.2.3"
    )


def test_how_many_pending_objects_are_not_listed() -> None:
    waits = [group(f"waits for {number}", "vm-1", is_failure=False) for number in range(25)]
    assert "Waiting (10 of 25)" in shown(workers=[worker("node-0", pending_groups=waits)])
    assert " of 1" not in shown(workers=[worker("node-0", pending_groups=waits[:1])])


def test_in_a_pipe_a_row_is_a_line_however_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    why = "the cloud says " + "no, and why, " * 20
    monkeypatch.setattr(
        "ccm.cli.status.answer_of",
        lambda *_: status(
            workers=[worker("node-0", pending_groups=[group(why, "a", is_failure=False)])]
        ),
    )
    output = CliRunner().invoke(main, ["status"], catch_exceptions=False).output
    assert why.strip() in output
    assert [line for line in output.splitlines() if line != line.rstrip()] == []


def test_commands_look_where_the_environment_lets_a_start_be() -> None:
    done = CliRunner().invoke(main, ["status"], env={"CCM_RUNTIME_DIR": "/nowhere"})
    assert "/nowhere/control.sock" in done.stderr


def test_a_worker_is_shown_with_its_numbers() -> None:
    row = shown(workers=[worker("node-0", objects=1234, queue={"ready": 56}, pending=78)])
    assert all(number in row for number in ("1234", "56", "78"))


@pytest.mark.parametrize(
    ("is_complete", "exit_code", "shown", "hidden"),
    [
        (True, ExitCode.OK, "Nothing would change.", "did not finish"),
        (False, ExitCode.FAILED, "The dry run did not finish in time", "Nothing would change."),
    ],
)
def test_nothing_to_change_is_said_of_a_complete_plan_only(
    monkeypatch: pytest.MonkeyPatch,
    is_complete: bool,
    exit_code: ExitCode,
    shown: str,
    hidden: str,
) -> None:
    async def dry_run(*_: object) -> Plan:
        return Plan([], [], [], {}, {"cloud_reads": 4}, is_complete)

    monkeypatch.setattr("ccm.cli.plan._dry_run", dry_run)
    result = CliRunner().invoke(main, ["plan"])
    assert result.exit_code == exit_code
    assert shown in result.output
    assert hidden not in result.output


@pytest.mark.parametrize(
    ("command", "statuses", "exit_code", "said"),
    [
        (["restart", "node-0"], ["old", "both", "new"], ExitCode.OK, "runs in a new process"),
        (["restart", "node-0"], ["old", "old"], ExitCode.FAILED, "not yet after"),
        (["restart", "node-0", "--no-wait"], ["old"], ExitCode.OK, "hands over"),
        (["stop"], ["old", "none"], ExitCode.OK, "stopped"),
        (["stop"], ["old"], ExitCode.FAILED, "not yet after"),
    ],
)
def test_a_command_returns_when_it_is_done(
    command: list[str],
    statuses: list[str],
    exit_code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workers = {
        "old": worker("node-0", pid=1),
        "both": worker("node-0", pid=1, successor_pid=2),
        "new": worker("node-0", pid=2),
    }
    left = iter(statuses)
    last = statuses[-1]

    def ask(_: object, request: dict[str, Any], __: float) -> dict[str, Any]:
        if request["command"] != "status":
            return {"ok": "hands over"}
        if (which := next(left, last)) == "none":
            raise NotRunning("nobody answers")
        return status(workers=[workers[which]])

    monkeypatch.setattr("ccm.cli.operate.ask", ask)
    monkeypatch.setattr("ccm.cli.operate.WAIT_LIMIT", 0.2)
    monkeypatch.setattr("ccm.cli.operate.WAIT_INTERVAL", 0.0)
    done = CliRunner().invoke(main, command)
    assert (done.exit_code, said in done.output) == (exit_code, True), done.output


def test_a_route_that_is_deleted_and_created_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    about = "route 10.244.1.0/24 to vm-3"
    other = {"about": "route 10.244.2.0/24 to vm-4", "does": "delete", "call": "DeleteRoute"}
    changes = [
        {"about": about, "does": "create", "call": "CreateRoute"},
        {"about": about, "does": "delete", "call": "DeleteRoute"},
        other,
        other,
    ]

    async def dry_run(*_: object) -> Plan:
        return Plan([], changes, [], {}, {"cloud_reads": 4}, True)

    monkeypatch.setattr("ccm.cli.plan._dry_run", dry_run)
    assert CliRunner().invoke(main, ["plan"]).stdout.splitlines()[:-1] == [
        f"~ {about}, replaced by DeleteRoute and CreateRoute",
        "- route 10.244.2.0/24 to vm-4, by DeleteRoute",
        "- route 10.244.2.0/24 to vm-4, by DeleteRoute",
    ]
