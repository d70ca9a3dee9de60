"""The real helm on the chart of this tree."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from release.chart import CHART
from tests.support.kube.build import CHARTS, find_binaries
from tests.support.needed import needed

Values = Mapping[str, Any]


class Refused(Exception):
    """Helm says no; the text is what it says."""


def helm(directory: Path, *arguments: str, values: Values | None = None) -> str:
    """What it prints; `directory` is for its caches and the values."""
    folder = needed(find_binaries(CHARTS), "helm is not built: run `make helm`")
    words = [str(folder / "helm"), *arguments]
    if values is not None:
        path = directory / "values.yaml"
        path.write_text(yaml.safe_dump(dict(values)))
        words.append(f"--values={path}")
    homes = {f"HELM_{name}_HOME": str(directory) for name in ("CACHE", "CONFIG", "DATA")}
    done = subprocess.run(
        words, env=os.environ | homes, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Refused(done.stderr)
    return done.stdout


def template(directory: Path, values: Values, namespace: str = "kube-system") -> str:
    """The objects of a release."""
    where = ("ccm", str(CHART), f"--namespace={namespace}")
    return helm(directory, "template", *where, values=values)


def as_values(flags: tuple[str, ...]) -> dict[str, Any]:
    """The value `flags` for a command line, where a flag that comes twice is a list."""
    found: dict[str, Any] = {}
    for name, is_set, text in (flag.removeprefix("--").partition("=") for flag in flags):
        is_typed = text in ("true", "false") or text.isdecimal()
        value = yaml.safe_load(text) if is_typed else text if is_set else True
        found[name] = [found[name], value] if name in found else value
    return found
