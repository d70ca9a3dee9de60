"""What the kit says: nothing is passed over in silence, and a wrong start is one error."""

from pathlib import Path

import pytest

from .conftest import MODULE, NAME, RunKit
from .kit_run import Run, run_pytest


def change(file: Path, before: str, after: str) -> None:
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))


def test_a_part_that_the_provider_lacks_is_not_shown_and_no_failure(
    package: Path, run_kit: RunKit
) -> None:
    change(package / "provider.py", "self.routes = MutantRoutes(api, cluster)", "")
    outcome = run_kit("routes", "resume")
    assert outcome.code == 0, outcome.output
    run = Run(outcome.code, outcome.output)
    assert (run.count("shown", "routes"), run.count("shown", "resume")) == (0, 12)
    assert run.count("not_shown") == run.count("not_shown", "routes") + 6
    assert run.not_shown() == {
        "routes: the provider has no routes",
        "resume: the provider has no routes",
    }


def test_services_of_another_controller_are_not_shown(package: Path, run_kit: RunKit) -> None:
    change(
        package / "load_balancers.py",
        "        wanted = wanted_of(service)\n",
        "        from ccm.errors import ImplementedElsewhere\n"
        "        raise ImplementedElsewhere('by the other one')\n",
    )
    outcome = run_kit("changes::test_other_hosts_reach_the_cloud")
    assert outcome.code == 0, outcome.output
    assert Run(0, outcome.output).not_shown() == {"changes: by the other one"}


@pytest.mark.parametrize(
    ("method", "test", "reason"),
    [
        (
            "inject",
            "errors::test_once_the_failure_is_over_the_same_provider_goes_on",
            "errors: the adapter injects no faults",
        ),
        (
            "calls",
            "errors::test_the_sdk_does_not_repeat_calls_by_itself",
            "errors: the adapter does not count the cloud's calls",
        ),
        ("stop_machine", "existence", "existence: the adapter stops no machines"),
        ("plant_route", "ownership", "ownership: the adapter plants no routes"),
    ],
)
def test_what_the_adapter_cannot_do_is_not_shown(
    package: Path, run_kit: RunKit, method: str, test: str, reason: str
) -> None:
    change(package / "testing.py", f"    def {method}(", f"    def not_{method}(")
    outcome = run_kit(test)
    assert outcome.code == 0, outcome.output
    assert Run(0, outcome.output).not_shown() == {reason}


def test_more_machines_than_the_adapter_may_have_are_not_shown(
    package: Path, run_kit: RunKit
) -> None:
    change(package / "testing.py", "page_size = PAGE", "page_size = PAGE\n    most_machines = 5")
    outcome = run_kit("batches")
    reasons = Run(outcome.code, outcome.output).not_shown()
    assert "batches: it takes 9 machines and the adapter may have 5" in reasons


def test_a_failure_is_counted_in_its_area_and_fails_the_run(package: Path, run_kit: RunKit) -> None:
    change(package / "instances.py", "if len(living) > 1:", "if len(living) > 9:")
    outcome = run_kit("existence", "./tests")
    assert outcome.code == 1
    run = Run(outcome.code, outcome.output)
    assert (run.count("failed"), run.count("failed", "existence")) == (1, 1)
    assert run.count("shown") == run.count("shown", "existence"), "its own tests are not the kit's"
    assert "provider mutant: what the kit has shown" in run.output


def test_a_cloud_that_cannot_be_reached_is_a_failure(package: Path, run_kit: RunKit) -> None:
    broken = "    def reset(self) -> bytes:\n        raise OSError('no emulator')\n"
    change(package / "testing.py", "    def reset(self) -> bytes:\n", broken)
    outcome = run_kit("volumes")
    assert outcome.code == 1
    assert Run(1, outcome.output).count("failed") == 7
    assert "no emulator" in outcome.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--provider=", "--adapter=x:y"), "needs --provider NAME and --adapter MODULE:NAME"),
        (("--adapter=",), "needs --provider NAME and --adapter MODULE:NAME"),
        (("--provider=nobody",), "--provider: 'nobody' is not known; choose one of:"),
        (("--adapter=nowhere:Adapter",), "--adapter nowhere:Adapter: No module named 'nowhere'"),
        ((f"--adapter={MODULE}.testing:Other",), "has no attribute 'Other'"),
        ((f"--adapter={MODULE}.testing",), f"--adapter {MODULE}.testing: "),
        ((f"--adapter={MODULE}.memory:Account",), "makes no ccm.cloud.testkit.adapter.Adapter"),
    ],
)
def test_a_wrong_start_is_one_error_that_says_what_to_do(
    package: Path, run_kit: RunKit, arguments: tuple[str, ...], words: str
) -> None:
    outcome = run_kit("volumes", *arguments)
    assert outcome.code == pytest.ExitCode.USAGE_ERROR
    assert words in outcome.output
    assert NAME in (package.parent / "pyproject.toml").read_text()


def test_in_a_run_without_the_kit_its_plugin_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it():\n    pass\n")
    run = run_pytest(tmp_path)
    assert run.code == 0
    assert "1 passed" in run.output
    assert "the kit" not in run.output
