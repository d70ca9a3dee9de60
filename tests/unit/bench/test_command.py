"""`python -m bench`: which parts run, at which sizes, and when that is a failure."""

import sys
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner, Result

from bench import __main__ as command
from bench.plan import Measured, Plan

GOOD = Measured([{"what": "it", "s": 1.0}], [])


class Parts:
    """Parts that run in no time: what they find, and with which plans they were run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: dict[str, Measured] = {}
        self.plans: dict[str, Plan] = {}
        self.kept: list[str] = []
        for part in (*command.PARTS, command.SMOKE):
            monkeypatch.setitem(sys.modules, f"bench.parts.{part}", self._module(part))
        monkeypatch.setattr(command, "keep", lambda part, *_: self.kept.append(part))
        monkeypatch.setattr("compileall.compile_dir", lambda *_, **__: True)
        monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # put back at the end

    def _module(self, part: str) -> ModuleType:
        async def measure(plan: Plan) -> Measured:
            self.plans[part] = plan
            return self.found.get(part, GOOD)

        module = ModuleType(part, f"About {part}.")
        module.measure = measure  # type: ignore[attr-defined]
        return module


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Parts:
    return Parts(monkeypatch)


def bench(*words: str) -> Result:
    return CliRunner().invoke(command.main, words)


def test_without_names_every_part_runs_and_is_kept_but_the_smoke(parts: Parts) -> None:
    assert bench().exit_code == 0
    assert list(parts.plans) == parts.kept == [*command.PARTS]


def test_every_part_there_is_can_be_named() -> None:
    here = Path(command.__file__).with_name("parts")
    assert {file.stem for file in here.glob("[!_]*.py")} == {*command.PARTS, command.SMOKE}


def test_the_smoke_is_never_kept_and_others_only_when_asked(parts: Parts) -> None:
    assert bench("smoke", "kill").exit_code == 0
    assert parts.kept == ["kill"]
    assert bench("routes", "--no-keep").exit_code == 0
    assert parts.kept == ["kill"]


def test_sizes_reach_the_part(parts: Parts) -> None:
    words = ("--nodes=20,300", "--shards=1,8", "--repeats=2", "--page=7", "--latency=0.5")
    assert bench("kill", *words, "--beats=1.5").exit_code == 0
    wanted = Plan(sizes=(20, 300), shards=(1, 8), repeats=2, page=7, latency=0.5, beats=1.5)
    assert parts.plans == {"kill": wanted}


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("kil", "'kil' is not one of 'initialise'"),
        ("--nodes=many", "Invalid value for '--nodes': 'many' is not one or more positive numbers"),
    ],
)
def test_what_cannot_be_run_is_told_before_anything_runs(
    word: str, said: str, parts: Parts
) -> None:
    done = bench(word)
    assert (done.exit_code, parts.plans) == (2, {})
    assert said in done.stderr


def test_a_broken_count_fails_the_run_once_all_parts_ran_and_is_told_last(parts: Parts) -> None:
    parts.found["kill"] = Measured(GOOD.rows, ["kill: 3 writes, not 2"])
    done = bench("kill", "routes")
    assert done.exit_code == 1
    assert list(parts.plans) == parts.kept == ["kill", "routes"]
    assert done.stderr == "kill: 3 writes, not 2\n"
    assert done.output.endswith(done.stderr)


def test_each_part_is_a_line_for_machines_and_a_table_for_people(parts: Parts) -> None:
    lines = bench("kill").stdout.splitlines()
    assert lines[0] == '{"part":"kill","rows":[{"what":"it","s":1.0}],"broken":[]}'
    assert lines[2:] == ["About kill.", "", "| what | s |", "|------|---|", "| it   | 1 |", ""]
