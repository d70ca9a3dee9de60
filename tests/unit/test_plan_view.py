"""What `ccm-supervisor plan` says to people."""

import pytest
from click.testing import CliRunner, Result

from ccm.cli.main import main
from ccm.dry_run.plan import Plan
from ccm.errors import ExitCode


def told(monkeypatch: pytest.MonkeyPatch, *, is_complete: bool) -> Result:
    async def made(*_: object) -> Plan:
        return Plan([], [], [], {}, {"cloud_reads": 4}, is_complete)

    monkeypatch.setattr("ccm.cli.plan._make", made)
    return CliRunner().invoke(main, ["plan"])


def test_nothing_to_change_is_said_when_all_came_to_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    result = told(monkeypatch, is_complete=True)
    assert result.exit_code == ExitCode.OK
    assert "Nothing would change." in result.output


def test_it_is_not_said_of_a_plan_that_may_lack_something(monkeypatch: pytest.MonkeyPatch) -> None:
    result = told(monkeypatch, is_complete=False)
    assert result.exit_code == ExitCode.FAILED
    assert "Nothing would change." not in result.output
    assert "Not every controller was idle in time" in result.output
