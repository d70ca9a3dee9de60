"""The site that `make site` builds: the search answers what people ask, and pages fit a phone."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.integration.status_page.browser import Tab, chromium, opened
from tests.support.deadlines import timeout
from tests.support.running import long, until

__all__ = ["chromium"]

pytestmark = long

QUESTIONS = {
    "node stays tainted": "docs/troubleshooting",
    "migrate from upstream controller": "docs/moving",
    "install k3s": "docs/install/k3s",
    "helm chart values": "deploy/chart/README",
    "rbac permissions": "docs/permissions",
    "prometheus metrics": "docs/metrics",
    "exit codes": "docs/output",
    "status page browser": "docs/page",
    "cloud throttles": "docs/troubleshooting",
    "freeze deletions": "docs/deletion",
    "leader election lease": "docs/leadership",
    "proxy protocol annotation": "docs/annotations",
    "vsphere configuration": "docs/providers/vsphere",
    "openstack octavia": "docs/providers/openstack",
    "systemd unit credentials": "docs/systemd",
    "dry run plan": "docs/plan",
    "write a provider": "docs/providers",
    "MachineLookup": "docs/site/provider-api",
    "json log fields": "docs/logs",
    "worker keeps dying": "docs/troubleshooting",
}
"""What an operator types → the page that has to be among the first five."""


@pytest.fixture(scope="module")
def site() -> Path:
    subprocess.run(["make", "-s", "site"], cwd=ROOT, check=True, timeout=timeout(600))
    return ROOT / "dist" / "site"


async def test_the_search_finds_what_operators_ask(
    site: Path, chromium: str, tmp_path: Path
) -> None:
    async with opened(chromium, tmp_path, scripts=True) as tab:
        found = {question: await _search(tab, site, question) for question in QUESTIONS}
    missed = {asked: found[asked] for asked, page in QUESTIONS.items() if page not in found[asked]}
    assert missed == {}


async def _search(tab: Tab, site: Path, question: str) -> list[str]:
    await tab.show(f"{(site / 'search.html').as_uri()}?q={question.replace(' ', '+')}")
    summary = "document.querySelector('.search-summary')?.textContent ?? ''"

    async def is_done() -> bool:
        text = str(await tab.run(summary))
        return "found" in text or "did not match" in text

    await until("the search is done", is_done)
    links = "JSON.stringify([...document.querySelectorAll('ul.search li a')].map(a => a.href))"
    pages = [
        link.partition("?")[0].partition("#")[0].removesuffix(".html")
        for link in json.loads(await tab.run(links))
    ]
    return [page.removeprefix(f"{site.as_uri()}/") for page in dict.fromkeys(pages)][:5]


@pytest.mark.parametrize("width", [360, 1280])
async def test_pages_need_no_network_and_fit(
    site: Path, chromium: str, tmp_path: Path, width: int
) -> None:
    async with opened(chromium, tmp_path, scripts=True) as tab:
        await tab.resize(width, height=900)
        for name in ("docs/site/index", "docs/flags", "docs/site/provider-api"):
            await tab.show((site / f"{name}.html").as_uri())
            assert await tab.run("document.documentElement.scrollWidth") <= width
            requests = [
                one["params"]["request"]["url"]
                for one in tab.events
                if one["method"] == "Network.requestWillBeSent"
            ]
            assert [url for url in requests if url.startswith("http")] == []
            await tab.picture(tmp_path / f"{width}-{Path(name).name}.png")
