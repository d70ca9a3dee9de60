"""What only a real browser tells; all else is in `test_render.py`.

Hostile names run nothing, not even unescaped; no cell is cut off on a phone or a tablet; a screen
reader finds every table by its name.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from ccm.model.conform import conform
from ccm.model.status import PageStatus
from ccm.supervisor.https.status_html import STYLE
from ccm.supervisor.https.status_sections import sections

from .browser import Tab, opened
from .statuses import PageReader, read, troubled, with_named, worker
from .test_render import CODE
from .test_served import showing

CUT_OFF = """[...document.querySelectorAll('td, th')].filter(
    cell => cell.getBoundingClientRect().right > innerWidth).length"""
"""How many cells of tables end beyond the edge of the screen."""

TOKEN = {"Authorization": "Bearer alice"}


async def test_a_hostile_name_does_nothing_in_a_browser_that_runs_scripts(
    chromium: str, tmp_path: Path
) -> None:
    hostile = with_named(troubled(), CODE)
    async with showing(hostile) as server, opened(chromium, tmp_path, scripts=True) as tab:
        await _show(tab, server.port)
        assert PageReader(await tab.source()).rows == read(hostile).rows
        assert await tab.run("document.scripts.length + document.images.length") == 0
        assert tab.complaints() == []


async def test_if_a_name_were_not_escaped_the_browser_would_still_run_nothing(
    chromium: str, tmp_path: Path
) -> None:
    async with showing(troubled()) as server, opened(chromium, tmp_path, scripts=True) as tab:
        await _show(tab, server.port)
        await tab.run(
            "document.body.innerHTML += '<img src=/x onerror=\"document.title = 1\">';"
            "document.body.append(Object.assign(document.createElement('script'),"
            " {textContent: 'document.title = 2'}))"
        )
        assert await tab.run("document.title") == read(troubled()).title
        refused = [text for text in tab.complaints() if "Content Security Policy" in text]
        assert len(refused) >= 2


@pytest.mark.parametrize(("width", "name"), [(360, "x" * 300), (768, "x"), (1121, "x")])
async def test_no_cell_is_cut_off(width: int, name: str, chromium: str, tmp_path: Path) -> None:
    """On a phone, each cell of a row has a line of its own."""
    facts = troubled() | {"workers": [worker("node-0", reasons={name: name})]}
    async with showing(facts) as server, opened(chromium, tmp_path, scripts=True) as tab:
        await _show(tab, server.port)
        await tab.resize(width)
        assert await tab.run("document.documentElement.scrollWidth") == width
        assert await tab.run(CUT_OFF) == 0


async def test_a_screen_reader_finds_every_table_by_name_with_titles_of_rows_and_columns(
    chromium: str, tmp_path: Path
) -> None:
    async with showing(troubled()) as server, opened(chromium, tmp_path) as tab:
        await _show(tab, server.port)
        nodes = (await tab.call("Accessibility.getFullAXTree"))["nodes"]
    page = read(troubled())
    assert page.rows.keys() == {
        section.title for section in sections(conform(PageStatus, troubled()))
    }
    assert _names(nodes, "table") == [*page.captions.values()]
    assert _names(nodes, "region") == [*page.headings.values()]
    assert {"vm-77", "default/api", "node-0", "Node"} <= {*_names(nodes, "rowheader")}
    titles = [title for titled, *_ in page.rows.values() for title in titled]
    assert _names(nodes, "columnheader") == titles
    assert ("lang", "en") in page.attributes


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_colour_of_text_can_be_read_on_both_grounds(theme: str) -> None:
    """The ratio that WCAG 2 asks for at level AA."""
    blocks = re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)
    colours = dict(re.findall(r"--(\w+): (#\w{6})", blocks[theme == "dark"]))
    for ground in ("paper", "band"):
        for text in ("ink", "faint", "link", "good", "fair", "bad"):
            assert _contrast(colours[text], colours[ground]) >= 4.5, (text, ground)


async def _show(tab: Tab, port: int) -> None:
    await tab.call("Network.setExtraHTTPHeaders", headers=TOKEN)
    await tab.show(f"https://127.0.0.1:{port}/")


def _names(nodes: list[Any], role: str) -> list[str]:
    named = [node for node in nodes if node.get("role", {}).get("value") == role]
    return [node["name"]["value"] for node in named]


def _contrast(one: str, other: str) -> float:
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
