"""Writes the kubeconfig that points clients at a sandbox."""

from __future__ import annotations

import os
from pathlib import Path

import orjson


def write_kubeconfig(path: Path, url: str, token: str = "") -> Path:
    """Write a kubeconfig for `url`, readable by its owner only.

    It is JSON, which is YAML as well.
    """
    user = {"token": token} if token else {}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "sandbox", "cluster": {"server": url}}],
        "users": [{"name": "sandbox", "user": user}],
        "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": "sandbox"}}],
        "current-context": "sandbox",
    }
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with open(os.open(beside, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file:
        file.write(orjson.dumps(config, option=orjson.OPT_INDENT_2) + b"\n")
    beside.replace(path)
    return path
