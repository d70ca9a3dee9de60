"""What a public forge reads: it calls targets and programs that are there."""

import re

import yaml

from release.tree import ROOT

FORGE = ROOT / ".github"


def test_ci_calls_what_everybody_calls() -> None:
    jobs = yaml.safe_load((FORGE / "workflows" / "ci.yml").read_text())["jobs"]
    runs = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    targets = {target for run in runs for target in re.findall(r"^make (\S+)", run)}
    made = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert targets <= {*made}
    assert any(".ci/run" in run for run in runs)
    assert (ROOT / ".ci" / "run").exists()


def test_templates_ask_for_something() -> None:
    for path in (FORGE / "ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(path.read_text())
        assert {"name", "description", "body"} == {*form}
        assert all(field["attributes"]["label"] for field in form["body"])
