"""A package made by `provider new`, installed as far as Python needs to find its entry point."""

import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from ccm.cli.main import main


def generate(directory: Path, name: str) -> Path:
    """The package in a new folder below `directory`."""
    target = directory / f"ccm-provider-{name}"
    done = CliRunner().invoke(main, ["provider", "new", name, "--directory", str(target)])
    assert done.exit_code == 0, done.output
    return target


def install(package: Path) -> None:
    """Let setuptools read the package's own configuration and write its entry points beside it."""
    command = [sys.executable, "-W", "ignore", "-c", "import setuptools; setuptools.setup()"]
    subprocess.run([*command, "-q", "egg_info"], cwd=package, check=True, timeout=60)
