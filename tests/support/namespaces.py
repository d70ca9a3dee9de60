"""Namespaces of Linux for what a test starts: who may make them, and what is missing for that."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = () if os.geteuid() == 0 else ("sudo", "-n")
SOURCE = Path(__file__).parents[2]


def in_root(script: Path, directory: Path, *words: str) -> tuple[str, ...]:
    """The command that runs a script that makes a root file system in `directory`."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    places = (directory, sys.base_prefix, python, sysconfig.get_path("purelib"), SOURCE)
    return ("/usr/bin/env", *ROOT, "sh", str(script), *map(str, places), *words)


def why_no_namespaces(program: str, packages: str) -> str:
    """What is missing on this host for namespaces and `program`; empty when nothing is.

    `packages` are those of Debian that hold `unshare`, `nsenter` and `program`.
    """
    for name in ("unshare", "nsenter", program):
        if not shutil.which(name):
            return f"{name} is not installed: apt-get install {packages}"
    try:
        subprocess.run((*ROOT, "unshare", "--mount", "--pid", "--fork", "true"), check=True)
    except (OSError, subprocess.CalledProcessError):
        return (
            "namespaces cannot be made here: run as root, with sudo, or in a privileged container"
        )
    return ""
