"""Prometheus' own tool, and which metrics an expression reads."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ccm.metrics import MetricType, catalogue

MISSING = "promtool is not installed: apt-get install prometheus"
HISTOGRAM_PARTS = ("_bucket", "_count", "_sum")


def promtool(*arguments: str | Path) -> str:
    """What it says; without it a skip on a laptop and a failure in CI; fails when it complains."""
    program = shutil.which("promtool")
    if program is None and os.environ.get("CI"):
        pytest.fail(MISSING)
    if program is None:
        pytest.skip(f"NOT RUN: {MISSING}")
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def metrics_in(expression: str) -> set[str]:
    """The names of the metrics, without those of labels, functions and keywords."""
    text = re.sub(r'"[^"]*"', "", expression)
    text = re.sub(r"\{[^}]*\}|\[[^]]*\]", " ", text)
    text = re.sub(r"\b(by|on|without|ignoring|group_left|group_right)\s*\([^)]*\)", " ", text)
    names = re.findall(r"[a-zA-Z_:][a-zA-Z0-9_:]*(?!\s*\(|[a-zA-Z0-9_:])", text)
    return {name for name in names if name not in {"and", "or", "unless", "bool", "offset"}}


def served() -> set[str]:
    """Every name that `/metrics` and `/metrics/slis` may show."""
    names: set[str] = set()
    for metric in catalogue():
        parts = HISTOGRAM_PARTS if metric.type is MetricType.HISTOGRAM else ("",)
        names |= {f"{metric.name}{part}" for part in parts}
    return names
