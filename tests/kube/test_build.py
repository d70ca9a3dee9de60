"""What the binaries are built from, and that it happens once; nothing real is built."""

import re
from pathlib import Path

import pytest

from tests.kube.build import BINARIES, KUBERNETES, build_binaries, find_binaries

FAKE_GO = """#!/bin/sh
echo "$@" >> "$GO_CALLS"
if [ "$1" = env ]; then echo go1.99.0; exit 0; fi
while [ "$1" != -o ]; do shift; done
printf '#!/bin/sh\\n' > "$2" && chmod +x "$2"
"""


def test_what_was_built_is_found_and_not_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, calls = tmp_path / "go", tmp_path / "calls"
    go.write_text(FAKE_GO)
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("GO_CALLS", str(calls))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    assert find_binaries() is None
    folder = build_binaries()
    assert find_binaries() == folder == build_binaries()
    assert sorted(path.name for path in folder.iterdir()) == sorted(BINARIES)
    assert len(re.findall(r"^build ", calls.read_text(), re.MULTILINE)) == len(BINARIES)


def test_the_staging_modules_have_the_version_of_kubernetes() -> None:
    staging = set(re.findall(r"=> k8s\.io/\S+ (\S+)", KUBERNETES.go_mod))
    assert staging == {KUBERNETES.version.replace("v1.", "v0.", 1)}
