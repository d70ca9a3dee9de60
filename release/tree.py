"""This tree, and what of it says when and as what a release was made."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from configparser import ConfigParser
from datetime import UTC, datetime
from pathlib import Path

from ccm.cloud.registry import GROUP

ROOT = Path(__file__).parents[1]
REQUIREMENTS = ROOT / "requirements"
NAME = "ccm-supervisor"
UV = Path(sys.executable).with_name("uv")  # that of this environment, which need not be active

_RELEASE = re.compile(r"^## (\S+) \((\d{4}-\d\d-\d\d)\)$", re.MULTILINE)


class ReleaseError(Exception):
    """A release cannot be made, or is not right; the text says what to do."""


def last_release() -> tuple[str, datetime]:
    """Version and day of the newest release that the changelog has."""
    found = _RELEASE.search((ROOT / "CHANGELOG.md").read_text())
    if not found:
        raise ReleaseError("CHANGELOG.md has no line like `## 0.1.0 (2026-01-31)`")
    return found[1], datetime.fromisoformat(found[2]).replace(tzinfo=UTC)


def epoch() -> int:
    """The time that everything in a release has: it must not matter when it is built."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    return int(given) if given else int(last_release()[1].timestamp())


def origin() -> dict[str, str]:
    """Labels with the commit and the address of the source, where they are known."""
    labels = {}
    for label, variable, *command in (
        ("revision", "SOURCE_REVISION", "rev-parse", "HEAD"),
        ("source", "SOURCE_URL", "remote", "get-url", "origin"),
    ):
        value = os.environ.get(variable) or _git(*command)
        if label == "revision" or value.startswith("https://"):
            labels[f"org.opencontainers.image.{label}"] = value
    return {label: value for label, value in labels.items() if value}


def _git(*command: str) -> str:
    """What git prints; nothing in a tree without its history."""
    git = ("git", "-C", str(ROOT), *command)
    return subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()


def clouds() -> list[str]:
    """Those of this tree, without the simulated one."""
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    points = config["options.entry_points"][GROUP].split("\n")
    return sorted({line.partition("=")[0].strip() for line in points} - {"", "simulated"})


def copy_tree(directory: Path) -> Path:
    """A copy without what builds and tests leave in a tree."""
    ignored = (ROOT / ".gitignore").read_text().split()
    leave_out = shutil.ignore_patterns(".git", *(line.strip("/") for line in ignored))
    return Path(shutil.copytree(ROOT, directory, ignore=leave_out))


def run(*command: str | Path, **variables: str) -> str:
    """What a command prints; with these variables beside ours."""
    environment: Mapping[str, str] = {**os.environ, **variables}
    try:
        done = subprocess.run(
            [*map(str, command)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            umask=0o022,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise ReleaseError(str(error)) from error
    return done.stdout
