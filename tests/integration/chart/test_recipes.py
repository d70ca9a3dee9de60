"""Pages about installing: their values and commands of helm go to the real helm and API server."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from release.chart import CHART
from release.tree import ROOT
from tests.docs.pages import DOCS, Page
from tests.integration.chart.helm import helm
from tests.support.kube.cluster import RealCluster

PAGES = (
    CHART / "README.md",
    *sorted(page for folder in ("install", "providers") for page in (DOCS / folder).glob("*.md")),
)
BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def documents(page: Path) -> Iterator[Any]:
    """All that is written in YAML on a page."""
    for block in BLOCK.findall(page.read_text()):
        yield from yaml.safe_load_all(block)


def values(page: Path) -> Iterator[dict[str, Any]]:
    """The values that a page gives the chart."""
    for body in documents(page):
        match body:
            case {"flags": _}:
                yield body
            case {"kind": "HelmChart", "spec": {"valuesContent": text}}:
                yield yaml.safe_load(text)
            case {"spec": {"extensions": {"helm": {"charts": charts}}}}:
                yield from (yaml.safe_load(chart["values"]) for chart in charts)


def commands(page: Path) -> list[list[str]]:
    lines = Page.read(page).code.splitlines()
    return [shlex.split(line)[1:] for line in lines if line.strip().startswith("helm install ")]


def test_there_are_recipes_with_values() -> None:
    assert {page.stem for page in PAGES if [*values(page)]} == {
        "README", "bootstrap", "k0s", "k3s", "kubeadm",
    }  # fmt: skip


@pytest.mark.real
@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_a_real_server_takes_what_a_page_installs(
    page: Path, kube: RealCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    dry_run = ("--dry-run=server", "--take-ownership", f"--kubeconfig={kube.kubeconfig('admin')}")
    given = [*values(page)]
    for each in given:
        helm(
            tmp_path, "install", "ccm", str(CHART), "--namespace=kube-system", *dry_run, values=each
        )
    for words in commands(page):
        where = words.index("--values") if "--values" in words else len(words)
        own = given[0] if where < len(words) else None
        helm(tmp_path, *words[:where], *words[where + 2 :], *dry_run, values=own)
