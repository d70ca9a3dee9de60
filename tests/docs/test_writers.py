"""The pages of writers and of attacks name tests that exist, and for each writer some."""

import re

import pytest

from tests.docs.pages import DOCS, ROOT

TEST = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


@pytest.mark.parametrize(
    ("page", "count"),
    [
        ("writers", 6),
        ("attacks", 3),
        ("attacks-nodes", 1),
        ("attacks-claims", 1),
        ("attacks-services", 2),
        ("attacks-turns", 2),
        ("attacks-gce", 2),
        ("attacks-incus", 1),
        ("attacks-answers", 1),
        ("attacks-clouds", 1),
        ("attacks-port", 1),
        ("attacks-proxy", 1),
    ],
)
def test_every_test_that_the_page_names_is_there(page: str, count: int) -> None:
    _, *sections = (DOCS / f"{page}.md").read_text().split("\n## ")
    assert len(sections) == count
    for section in sections:
        named = TEST.findall(section)
        assert named, section.partition("\n")[0]
        for file, name in named:
            assert f"def {name}(" in (ROOT / "tests" / file).read_text(), name
