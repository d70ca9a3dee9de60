"""The page of what each writer can reach names tests that exist, and for each writer some."""

import re

from tests.docs.pages import DOCS, ROOT

TEST = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


def test_every_test_that_the_page_names_is_there() -> None:
    _, *sections = (DOCS / "writers.md").read_text().split("\n## ")
    assert len(sections) == 6
    for section in sections:
        named = TEST.findall(section)
        assert named, section.partition("\n")[0]
        for file, name in named:
            assert f"def {name}(" in (ROOT / "tests" / file).read_text(), name
