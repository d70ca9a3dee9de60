"""What commands print for programs, of a running sandbox: the documented fields, both formats."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from click.testing import CliRunner, Result

from ccm.checks.run import to_json
from ccm.cli.main import main
from ccm.dry_run.plan import Plan
from tests.docs.pages import table_rows
from tests.support.running import wait_for

CODE = re.compile(r"`(\w+)`")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where a sandbox of two nodes has settled."""
    where = tmp_path_factory.mktemp("sandbox")
    command = [sys.executable, "-m", "ccm.cli.main", "sandbox", "--nodes=2", "--no-story"]
    log = (where / "said.log").open("w+")
    with log, subprocess.Popen([*command, f"--directory={where / 'box'}"], stdout=log) as running:
        try:
            wait_for("both are ready", lambda: "2 of 2" in (where / "said.log").read_text())
            yield where / "box"
        finally:
            running.send_signal(signal.SIGINT)
    assert running.returncode == 0


def typed(*words: str) -> Result:
    return CliRunner().invoke(main, [*words], catch_exceptions=False)


def documented(table: str) -> set[str]:
    """The fields in the first column of a table."""
    return {name for cells in table_rows("output.md", table)[1:] for name in CODE.findall(cells[0])}


def others() -> dict[str, tuple[str, set[str]]]:
    """Schema and fields of the smaller documents, by command."""
    return {
        command.strip("`"): (schema, set(CODE.findall(names)))
        for command, schema, names in table_rows("output.md", "others")[1:]
    }


def assert_documented(document: Any, schema: str, names: set[str], *extra: str) -> None:
    assert document.pop("schema") == schema
    assert {*document, *extra} == names


@pytest.mark.parametrize(
    ("schema", "words", "extra"),
    [
        ("status/v1", ["status"], ["uninitialized_nodes"]),  # the sandbox serves no HTTPS
        ("explain/v1", ["explain", "node/vm-1"], ["deletion"]),
        ("deletions/v1", ["deletions"], []),
    ],
)
def test_what_a_supervisor_answers_has_the_documented_fields(
    directory: Path, schema: str, words: list[str], extra: list[str]
) -> None:
    where = f"--runtime-dir={directory}/run"
    as_json, as_yaml = (typed(*words, where, "-o", name) for name in ("json", "yaml"))
    assert orjson.loads(as_json.stdout).keys() == yaml.safe_load(as_yaml.stdout).keys()
    assert_documented(orjson.loads(as_json.stdout), schema, documented(schema), *extra)


@pytest.mark.parametrize("command", ["sandbox machine list", "sandbox counters"])
def test_a_sandbox_is_found_by_the_directory_of_its_group(directory: Path, command: str) -> None:
    _, *words = command.split()
    done = typed("sandbox", f"--directory={directory}", *words, "-o", "json")
    schema, names = others()[command]
    assert done.exit_code == 0, done.output
    assert_documented(orjson.loads(done.stdout), schema, names)


@pytest.mark.parametrize("words", [["nodes", "vm-1"], ["Node/vm-2"], ["node", "vm-1"]])
def test_an_object_can_be_named_as_kubectl_names_it(directory: Path, words: list[str]) -> None:
    done = typed("explain", *words, f"--runtime-dir={directory}/run")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith("node vm-")


@pytest.mark.parametrize("words", [["node/vm-77"], ["svc/no"], ["pv", "none"]])
def test_the_exit_code_reports_what_is_missing(directory: Path, words: list[str]) -> None:
    done = typed("explain", *words, f"--runtime-dir={directory}/run")
    assert done.exit_code == 1
    assert "no worker here knows a" in done.stderr


def test_a_fault_that_does_not_exist_is_refused_in_a_line(directory: Path) -> None:
    done = typed("sandbox", "fault", "set", "nonsense", f"--directory={directory}")
    assert done.exit_code == 2
    assert "must be one of error, denied, " in done.stderr


def test_what_is_made_without_a_supervisor_has_the_documented_fields() -> None:
    assert documented("plan/v1") == {field.name for field in fields(Plan)}
    assert documented("check/v1") >= to_json([], "1", "simulated").keys()
    for command in ("version", "providers"):
        document = orjson.loads(typed(command, "-o", "json").stdout)
        assert_documented(document, *others()[command])


def test_a_shell_completes_the_workers_that_run(directory: Path) -> None:
    line = f"ccm-supervisor restart --runtime-dir={directory / 'run'} n"
    asked = {"_CCM_SUPERVISOR_COMPLETE": "fish_complete", "COMP_WORDS": line, "COMP_CWORD": "n"}
    done = CliRunner().invoke(main, prog_name="ccm-supervisor", env=asked, catch_exceptions=False)
    assert done.output.split() == ["plain,node-0", "plain,node-1"]
