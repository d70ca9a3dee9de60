"""`provider new`: what it writes works as it is, and it overwrites nothing."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ccm.cli.main import main
from tests.integration.testkit.kit_run import INSTANCES_ONLY, generate, install, run_pytest

ROOT = Path(__file__).parents[3]


def new(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["provider", "new", *arguments])
    return done.exit_code, done.output


NOTHING_LIKE_IT = {
    "service changes: the provider does not honour two IP families",
    "service changes: the provider does not honour a requested IP",
    "load balancers: this provider reads each load balancer by itself",
    "provider: the adapter names no SDK",
    "untrusted: no Service of this cloud names a load balancer or an address",
}


@pytest.mark.parametrize("flags", [(), ("--nodes-only",)], ids=["all parts", "nodes only"])
def test_what_is_written_passes_the_kit_and_its_own_tests(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    package = generate(tmp_path, "my-cloud", *flags)
    install(package)
    run = run_pytest(package)
    assert run.code == 0, run.output
    assert run.count("failed") == 0
    reasons = {reason.partition(": ")[2] for reason in run.skipped()}
    if flags:
        assert run.count("skipped", "instances") == 0
        assert reasons <= INSTANCES_ONLY | {"the adapter names no SDK"}
    else:
        assert run.count("passed") > 200
        assert run.skipped() == NOTHING_LIKE_IT
    assert "conformance of provider my-cloud" in run.output


def test_what_is_written_is_short(tmp_path: Path) -> None:
    """An author reads all of it."""
    files = [path for path in generate(tmp_path, "mine").rglob("*") if path.is_file()]
    assert sum(len(path.read_text().splitlines()) for path in files) <= 560
    modules = [path for path in files if path.parent.name == "ccm_provider_mine"]
    assert sum(len(path.read_text().splitlines()) for path in modules) <= 510


@pytest.mark.parametrize("command", [["check", "--no-cache"], ["format", "--check", "--no-cache"]])
@pytest.mark.parametrize("flags", [(), ("--nodes-only",)], ids=["all parts", "nodes only"])
def test_what_is_written_is_in_our_style(
    tmp_path: Path, flags: tuple[str, ...], command: list[str]
) -> None:
    package = generate(tmp_path, "mine", *flags)
    ruff = [sys.executable, "-m", "ruff", *command, "--config", str(ROOT / "ruff.toml")]
    done = subprocess.run(ruff, cwd=package, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_it_goes_to_a_folder_of_its_name_and_says_what_is_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, output = new("mine")
    assert code == 0
    assert "  cd ccm-provider-mine\n  python3 -m venv .venv\n  .venv/bin/pip install" in output
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert "ccm-provider-mine/ccm_provider_mine/provider.py" in written
    assert "ccm-provider-mine/README.md" in written
    assert not [path for path in written if path.endswith(".tmpl")]


@pytest.mark.parametrize("there", ["README.md", "anything"])
def test_a_folder_with_something_in_it_is_left_as_it_is(tmp_path: Path, there: str) -> None:
    (tmp_path / there).write_text("mine")
    code, output = new("mine", "--directory", str(tmp_path))
    assert code != 0
    assert "is not empty: name another with --directory" in output
    assert [path.name for path in tmp_path.iterdir()] == [there]
    assert (tmp_path / there).read_text() == "mine"


def test_a_place_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        code, output = new("mine", "--directory", str(place))
        assert (code, "cannot be written: Not a directory" in output) == (1, True)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("My", "small letters"),
        ("my_cloud", "small letters"),
        ("1cloud", "a letter first"),
        ("my--cloud", "single dashes"),
        ("my-", "single dashes"),
        ("", "a letter first"),
        ("../mine", "small letters"),
        ("ä", "small letters"),
        ("a" * 41, "at most 40 characters"),
        ("external", "means that there is no provider"),
        ("simulated", "there is a provider 'simulated' already"),
    ],
)
def test_a_name_that_will_not_do_is_refused(tmp_path: Path, name: str, words: str) -> None:
    code, output = new(name, "--directory", str(tmp_path / "new"))
    assert code == 2
    assert words in output.replace("\n", " ")
    assert not (tmp_path / "new").exists()
