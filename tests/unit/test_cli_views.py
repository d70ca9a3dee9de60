"""What `ccm-supervisor status` and `plan` show."""

from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from ccm.cli.fitting import Whole
from ccm.cli.main import main
from ccm.cli.status_view import status_view
from ccm.dry_run.plan import Plan
from ccm.errors import ExitCode
from ccm.supervisor.https.status_problems import find_problems
from tests.integration.status_page.statuses import status, worker


def shown(**changes: Any) -> str:
    console = Console(width=120)
    with console.capture() as text:
        console.print(Whole(status_view(status(**changes))))
    return text.get()


def test_the_faults_of_a_worker_that_refuses_to_start() -> None:
    refuses = worker(
        "node-0", state="failed", pid=None, faults=["--cloud-config: [Global] ulr is unknown"]
    )
    assert "node-0: --cloud-config: [Global] ulr is unknown" in shown(workers=[refuses])


def test_why_a_worker_is_skipped() -> None:
    why = "--configure-cloud-routes is false"
    skipped = status(workers=[worker("route", state="skipped", faults=[why])])
    assert shown(**skipped).count(why) == 1
    assert f"route is skipped: {why}" in shown(**skipped)
    assert not [*find_problems(skipped)]


def test_the_failure_of_a_watch() -> None:
    assert "watch of Node: 403 Forbidden" in shown(
        informer={"kinds": {"Node": {"last_error": "403 Forbidden"}, "Service": {"last_error": ""}}}
    )


def test_how_many_pending_objects_are_not_listed() -> None:
    many = worker("node-0", reasons={f"vm-{number}": "waits" for number in range(25)})
    assert "Pending (10 of 25)" in shown(workers=[many])
    assert " of 1" not in shown(workers=[worker("node-0", reasons={"vm-1": "waits"})])


def test_in_a_pipe_a_row_is_a_line_however_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    why = "the cloud says " + "no, and why, " * 20
    monkeypatch.setattr(
        "ccm.cli.status.answer_of",
        lambda *_: status(workers=[worker("node-0", reasons={"a": why, "b": "c"})]),
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
