"""What a public forge and its bots read: it calls targets and programs that are there."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from release.tree import ROOT

FORGE = ROOT / ".github"
CI = FORGE / "workflows" / "ci.yml"
SETUP = FORGE / "actions" / "setup" / "action.yml"
HOOKS = ROOT / ".pre-commit-config.yaml"
OLD = {f"/tests/support/kube/pins/{name}" for name in ("oldest", "skew")}


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def runs(job: Any) -> list[str]:
    return [step["run"] for step in job["steps"] if "run" in step]


def test_ci_and_the_hooks_call_what_everyone_calls() -> None:
    jobs = loaded(CI)["jobs"]
    assert {*jobs} == {"lint", "unit", "integration", "e2e", "release"}
    assert {*jobs["release"]["needs"]} == {*jobs} - {"release"}
    calls = [run for job in (*jobs.values(), loaded(SETUP)["runs"]) for run in runs(job)]
    calls += [hook["entry"] for hook in loaded(HOOKS)["repos"][0]["hooks"]]
    named = re.findall(r"(?:^make|\.ci/run) ([a-z -]+)(?![A-Z=])", "\n".join(calls), re.MULTILINE)
    made = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert len(named) >= len(calls) - 1  # all but what installs packages
    assert {word for words in named for word in words.split()} <= {*made}
    assert (ROOT / ".ci" / "run").exists()


def test_the_jobs_together_are_make_check() -> None:
    jobs = {name: " ".join(runs(job)) for name, job in loaded(CI)["jobs"].items()}
    makefile = (ROOT / "Makefile").read_text()
    (wanted,) = re.findall(r"--output-sync=target ([a-z -]+)", makefile)
    assert jobs["lint"] == f"make {wanted.strip()}"
    left_out = re.findall(r"--ignore=(\S+?)[\" ]", jobs["integration"])
    assert left_out == ["tests/unit", "tests/e2e"]
    assert jobs["unit"] == "make test-fast"
    assert "test bench-smoke TESTS=tests/e2e" in jobs["e2e"]


def test_the_hooks_are_those_of_the_lint_job() -> None:
    (repo,) = loaded(HOOKS)["repos"]
    assert repo["repo"] == "local", "a version of its own would differ from the locked one"
    entries = [hook["entry"].removeprefix("make ") for hook in repo["hooks"]]
    assert runs(loaded(CI)["jobs"]["lint"]) == [f"make {' '.join(entries)}"]


@pytest.mark.parametrize("path", [CI, SETUP], ids=lambda path: path.name)
def test_every_action_is_pinned_by_commit_with_its_version(path: Path) -> None:
    used = re.findall(r"uses: (?!\./)(.*)", path.read_text())
    assert used
    assert [one for one in used if not re.fullmatch(r"\S+@[0-9a-f]{40} # v[\d.]+", one)] == []


def test_the_dependency_bot_follows_everything_that_is_pinned() -> None:
    folders = {one["package-ecosystem"]: one["directories"] for one in _updates()}
    modules = {f"/{file.parent.relative_to(ROOT)}" for file in (ROOT / "tests").rglob("go.mod")}
    assert {*folders["gomod"]} == modules - OLD
    assert folders["pip"] == ["/", "/requirements"]
    assert folders["github-actions"] == ["/", f"/{SETUP.parent.relative_to(ROOT)}"]


def _updates() -> list[Any]:
    return list(loaded(FORGE / "dependabot.yml")["updates"])


def test_the_owners_are_of_folders_that_are_there() -> None:
    lines = [line.split() for line in (FORGE / "CODEOWNERS").read_text().splitlines()]
    owned = [words for words in lines if words[0] != "#"]
    assert owned[0][0] == "*"
    assert all(words[1:] and (ROOT / words[0].strip("/*")).is_dir() for words in owned)


def test_templates_ask_for_something() -> None:
    forms = {path.stem: loaded(path) for path in (FORGE / "ISSUE_TEMPLATE").glob("*.yml")}
    assert forms.keys() == {"bug_report", "feature_request"}
    for form in forms.values():
        assert {"name", "description", "labels", "body"} == {*form}
        assert all(field["attributes"]["label"] for field in form["body"])
