"""What the kit says: nothing is passed over in silence, and a wrong start is one error."""

from pathlib import Path

import pytest

from .conftest import MODULE, NAME, RunKit
from .kit_run import run_pytest


def change(file: Path, before: str, after: str) -> None:
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))


def test_a_part_that_the_provider_lacks_is_skipped_and_no_failure(
    package: Path, run_kit: RunKit
) -> None:
    change(package / "provider.py", "self.routes = MutantRoutes(self._api, cluster)", "")
    outcome = run_kit("routes", "failures::test_it_converges_from_wherever_it_was_broken_off")
    assert outcome.code == 0, outcome.output
    assert (outcome.count("passed", "routes"), outcome.count("passed", "failures")) == (0, 12)
    assert outcome.count("skipped") == outcome.count("skipped", "routes") + 6
    assert outcome.skipped() == {
        "routes: the provider has no routes",
        "failures: the provider has no routes",
    }


def test_services_of_another_controller_are_skipped(package: Path, run_kit: RunKit) -> None:
    change(
        package / "load_balancers.py",
        "        mark = {",
        "        from ccm.errors import ImplementedElsewhere\n"
        "        raise ImplementedElsewhere('by the other one')\n        mark = {",
    )
    outcome = run_kit("service_changes::test_other_backends_reach_the_cloud")
    assert outcome.code == 0, outcome.output
    assert outcome.skipped() == {"service changes: by the other one"}


@pytest.mark.parametrize(
    ("method", "test", "reason"),
    [
        (
            "inject_fault",
            "failures::test_once_the_failure_is_over_the_same_provider_goes_on",
            "failures: the adapter injects no faults",
        ),
        (
            "count_calls",
            "failures::test_the_sdk_does_not_repeat_calls_by_itself",
            "failures: the adapter does not count the cloud's calls",
        ),
        (
            "stop_machine",
            "instances::test_a_stopped_machine_exists_and_is_off_until_it_is_started",
            "instances: the adapter stops no machines",
        ),
        ("create_foreign_route", "routes", "routes: the adapter creates no foreign routes"),
    ],
)
def test_what_the_adapter_cannot_do_is_skipped(
    package: Path, run_kit: RunKit, method: str, test: str, reason: str
) -> None:
    with (package / "testing.py").open("a") as file:
        file.write(f"\nMutantAdapter.{method} = StandInAdapter.__base__.{method}\n")
    outcome = run_kit(test)
    assert outcome.code == 0, outcome.output
    assert outcome.skipped() == {reason}


def test_more_machines_than_the_adapter_may_have_are_skipped(
    package: Path, run_kit: RunKit
) -> None:
    change(package / "testing.py", "page_size = PAGE", "page_size = PAGE\n    max_machines = 5")
    outcome = run_kit("instances")
    reasons = outcome.skipped()
    assert "instances: it takes 9 machines and the adapter may have 5" in reasons


def test_a_cloud_may_take_its_token_in_another_header(package: Path, run_kit: RunKit) -> None:
    with (package / "api.py").open("a") as file:
        file.write('\n\nMutantApi.authorization = lambda _, texts: {"X-Key": texts[0]}\n')
    change(
        package / "testing.py", "page_size = PAGE", 'page_size = PAGE\n    token_header = "X-Key"'
    )
    outcome = run_kit("instances")
    assert outcome.code == 0, outcome.output


def test_a_failure_is_counted_in_its_area_and_fails_the_run(package: Path, run_kit: RunKit) -> None:
    change(package / "instances.py", "self._is_ours(machine)]", "self._is_ours(machine)][:1]")
    outcome = run_kit("instances", "./tests")
    assert outcome.code == 1
    assert (outcome.count("failed"), outcome.count("failed", "instances")) == (1, 1)
    assert outcome.count("passed") == outcome.count("passed", "instances"), (
        "its own tests are not the kit's"
    )
    assert "conformance of provider mutant" in outcome.output


def test_a_cloud_that_cannot_be_reached_is_a_failure(package: Path, run_kit: RunKit) -> None:
    broken = "    def reset(self) -> bytes:\n        raise OSError('no emulator')\n"
    change(package / "testing.py", "    def reset(self) -> bytes:\n", broken)
    outcome = run_kit("volumes")
    assert outcome.code == 1
    assert outcome.count("passed") == 0 < outcome.count("failed")
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
        (
            (f"--adapter={MODULE}.provider:MutantProvider",),
            "makes no ccm.cloud.testkit.adapter.Adapter",
        ),
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
    assert "conformance" not in run.output
