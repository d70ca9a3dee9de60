"""The command itself: flags from every source, both formats, exit codes; no cluster is needed."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ccm.checks.run import CHECKS
from ccm.cli.main import main

OFF = "https://127.0.0.1:9"
HERE = ("--cloud-provider=simulated", f"--master={OFF}", "--secure-port=0")


@pytest.fixture(autouse=True)
def _no_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


def check(*words: str) -> Result:
    return CliRunner().invoke(main, ["check", *words])


def flags(tmp_path: Path) -> list[str]:
    return [*HERE, f"--runtime-dir={tmp_path}/run"]


def test_unusable_flags_end_it_as_they_end_a_start() -> None:
    words = ["--leader-elect-retry-period=soon", "--node-workers=0", "--no-such-flag"]
    reported = check(*words)
    assert reported.exit_code == 78
    assert reported.stderr == CliRunner().invoke(main, ["start", *words]).stderr
    assert reported.stdout == ""


def test_without_an_api_server_everything_else_is_still_reported(tmp_path: Path) -> None:
    done = check("-o", "json", *flags(tmp_path))
    body = json.loads(done.stdout)
    states = {each["name"]: each["state"] for each in body["checks"]}
    assert done.exit_code == 1
    assert list(states) == [each.name for each in CHECKS]
    assert {name for name, state in states.items() if state == "failed"} == {
        "api-server",
        "cloud-provider",
    }
    assert states["directories"] == states["open-files"] == "ok"
    assert not (tmp_path / "run").exists()


def test_the_table_has_every_remedy(tmp_path: Path) -> None:
    done = check(*flags(tmp_path))
    assert done.exit_code == 1
    text = " ".join(done.stdout.split())
    assert "→ check the address, and that the API server is running" in text
    assert "→ give the URL of the simulated cloud" in text
    assert f"{len(CHECKS)} checks: " in text
    assert "2 failed" in text


def test_flags_come_from_environment_and_file_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CCM_MASTER", OFF)
    file = tmp_path / "flags.yaml"
    file.write_text("cloud-provider: nimbus\nsecure-port: 0\n")
    body = json.loads(check("-o", "json", f"--config={file}").stdout)
    assert body["provider"] == "nimbus"
    [found] = [each for each in body["checks"] if each["name"] == "api-server"]
    assert OFF in found["findings"][0]["message"]
    assert "--master" in found["findings"][0]["message"]


def test_an_unknown_format_is_refused() -> None:
    done = check("-o", "xml")
    assert done.exit_code == 2
    assert "'xml' is not one of 'table', 'json', 'yaml'" in done.stderr


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("flags", ["--enable-leader-migration", "--leader-migration-config={none}"]),
        ("https", ["--secure-port=1", "--client-ca-file={none}"]),
        ("https", ["--secure-port=1", "--requestheader-client-ca-file={broken}"]),
        ("https", ["--secure-port=1", "--authentication-kubeconfig={none}"]),
        ("https", ["--secure-port=1", "--authorization-kubeconfig={broken}"]),
        ("https", ["--secure-port=1", "--cert-dir={broken}"]),
        ("https", ["--secure-port=1", "--cert-dir={half}"]),
    ],
    ids=lambda value: value if isinstance(value, str) else value[-1],
)
def test_what_would_end_a_start_is_reported_in_its_words(
    name: str, flags: list[str], tmp_path: Path
) -> None:
    broken, half, flag = tmp_path / "broken", tmp_path / "half", flags[-1].partition("=")[0]
    broken.write_text("{[")
    half.mkdir()
    (half / "cloud-controller-manager.crt").touch()
    paths = {"none": tmp_path / "none", "broken": broken, "half": half}
    words = [word.format(**paths) for word in flags]
    done = check("-o", "json", f"--runtime-dir={tmp_path}/run", *HERE[:2], *words)
    (found,) = [each for each in json.loads(done.stdout)["checks"] if each["name"] == name]
    reported = [each["message"] for each in found["findings"] if each["state"] == "failed"]
    assert [message for message in reported if message.startswith(f"{flag}: ")], found
    assert not any("the check itself failed" in message for message in reported)
