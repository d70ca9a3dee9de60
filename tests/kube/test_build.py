"""Finding and building the binaries, with a `go` that only pretends; nothing real is built."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kube.build import BINARIES, KUBERNETES, BuildError, build_binaries, find_binaries

ROOT = Path(__file__).parents[2]

FAKE_GO = """#!/bin/sh
echo "$@" >> "$GO_CALLS"
if [ "$1" = env ]; then echo "${GO_VERSION:-go1.99.0}"; exit 0; fi
while [ "$1" != -o ]; do shift; done
sleep 0.1
printf '#!/bin/sh\\n' > "$2" && chmod +x "$2"
exit "${GO_EXIT:-0}"
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache and a pretended Go; returns the file that lists what Go was told."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "go").write_text(FAKE_GO)
    (tools / "go").chmod(0o755)
    calls = tmp_path / "calls"
    calls.touch()
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setenv("GO_CALLS", str(calls))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return calls


def builds(calls: Path) -> int:
    return len(re.findall(r"^build ", calls.read_text(), re.MULTILINE))


def test_what_was_built_is_found_and_not_built_again(calls: Path) -> None:
    assert find_binaries() is None
    folder = build_binaries()
    assert find_binaries() == folder == build_binaries()
    assert sorted(path.name for path in folder.iterdir()) == sorted(BINARIES)
    assert builds(calls) == len(BINARIES)


def test_two_callers_at_once_build_once(calls: Path) -> None:
    command = (sys.executable, "-m", "tests.kube.build")
    callers = [
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for _ in range(2)
    ]
    answers = {caller.communicate(timeout=60)[0] for caller in callers}
    assert answers == {f"{find_binaries()}\n".encode()}
    assert builds(calls) == len(BINARIES)


def test_a_broken_build_is_never_found(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GO_EXIT", "1")
    with pytest.raises(BuildError, match=r"`go build` of etcd v3\S+ failed"):
        build_binaries()
    assert find_binaries() is None
    monkeypatch.delenv("GO_EXIT")
    assert build_binaries() == find_binaries()


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("PATH", "/nowhere", r"Go is missing: install Go 1\.\d+\.\d+ or newer"),
        ("GO_VERSION", "go1.9.7", r"Go is too old \(1\.9\.7\): install Go 1\.\d+\.\d+"),
    ],
)
def test_a_missing_or_old_go_is_named_with_the_remedy(
    variable: str, value: str, told: str, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(BuildError, match=told):
        build_binaries()


def test_given_assets_win_and_a_missing_one_is_named(
    calls: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assets = tmp_path / "assets"
    assets.mkdir()
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    for name in ("kube-apiserver", "kubectl"):
        (assets / name).touch(mode=0o755)
    with pytest.raises(BuildError, match=r"does not hold etcd$"):
        find_binaries()
    (assets / "etcd").touch(mode=0o755)
    assert find_binaries() == assets
    assert builds(calls) == 0


def test_the_staging_modules_have_the_version_of_kubernetes() -> None:
    staging = set(re.findall(r"=> k8s\.io/\S+ (\S+)", KUBERNETES.go_mod))
    assert staging == {KUBERNETES.version.replace("v1.", "v0.", 1)}


def test_what_is_built_states_the_version_of_kubernetes(calls: Path) -> None:
    build_binaries()
    lines = [line for line in calls.read_text().splitlines() if line.startswith("build")]
    stated = {f"gitVersion={KUBERNETES.version} " in line for line in lines if "/cmd/" in line}
    assert stated == {True}
