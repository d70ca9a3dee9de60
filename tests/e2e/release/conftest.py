"""The packages, made once, and an environment that has nothing but the wheel."""

import os
import sys
from pathlib import Path

import pytest

from release.packages import make_packages
from release.tree import UV, run

PYTHON_VARIABLES = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The source distribution and the wheel."""
    return make_packages(tmp_path_factory.mktemp("packages"))


@pytest.fixture(scope="session")
def installed(packages: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the commands that the wheel brings; this tree is not on their path."""
    environment = tmp_path_factory.mktemp("installed") / "venv"
    run(UV, "venv", "--quiet", f"--python={sys.executable}", environment)
    pip = (UV, "pip", "install", "--quiet", f"--python={environment}")
    run(*pip, f"{packages[1]}[aws]")
    return environment / "bin"


def clean_variables() -> dict[str, str]:
    """Our variables without those that would let Python find this tree, or shells our commands."""
    ours = str(Path(sys.executable).parent)
    path = ":".join(place for place in os.environ["PATH"].split(":") if place != ours)
    kept = {name: text for name, text in os.environ.items() if name not in PYTHON_VARIABLES}
    return {**kept, "PATH": path}
