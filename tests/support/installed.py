"""A package with entry points, as if it were installed."""

import os
from pathlib import Path

import pytest

from ccm import controllers
from ccm.cloud import registry


def install(
    site: Path,
    monkeypatch: pytest.MonkeyPatch,
    *brought: str,
    provider: str = "",
    **modules: str,
) -> None:
    """In this process and those it starts: controllers and a provider, and texts of modules.

    An entry of `brought` is `provider.name = module`, `provider` is `name = module:Class`.
    """
    metadata = site / "ccm_mine-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: ccm-mine\nVersion: 1.0\n")
    lines = [f"[{controllers.GROUP}]", *brought, f"[{registry.GROUP}]", provider]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    for name, text in modules.items():
        (site / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(site)
    path = filter(None, (str(site), os.environ.get("PYTHONPATH")))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
