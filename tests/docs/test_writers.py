"""The pages of writers and of attacks name tests that exist, and for each writer some."""

import re

import pytest

from tests.docs.pages import DOCS, ROOT

TEST = re.compile(r"`([\w/]+\.py)::(test_\w+)`")
ROW = re.compile(r"^\|([^|]+)\|([^|]+)\|([^|]+)\| `[^|]+\|$", re.MULTILINE)
ATTACKS = sorted(path.stem for path in DOCS.glob("attacks*.md"))
MAX_WORDS = 30
"""Of a row of an attack, in its three cells before the tests."""


@pytest.mark.parametrize("page", ["writers", *ATTACKS])
def test_every_test_that_the_page_names_is_there(page: str) -> None:
    _, *sections = (DOCS / f"{page}.md").read_text().split("\n## ")
    assert sections
    for section in sections:
        named = TEST.findall(section)
        assert named, section.partition("\n")[0]
        for file, name in named:
            assert f"def {name}(" in (ROOT / "tests" / file).read_text(), name


def test_an_attack_has_one_short_row() -> None:
    text = "".join((DOCS / f"{page}.md").read_text() for page in ATTACKS)
    rows = [row.group(1, 2, 3) for row in ROW.finditer(text)]
    attacks = [attack for attack, _, _ in rows]
    assert len(attacks) == len(set(attacks))
    assert [row for row in rows if len(" ".join(row).split()) > MAX_WORDS] == []
