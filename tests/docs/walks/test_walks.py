"""A new object passes through few files, so that someone can read what becomes of it."""

import re
from importlib import import_module
from operator import attrgetter

import pytest

from tests.docs.walks.recorder import BACKGROUND, POINTS, ROOT, Walk
from tests.docs.walks.walks import Files, measure


@pytest.mark.parametrize(("file", "function"), sorted({*POINTS, *BACKGROUND}))
def test_a_function_that_the_tables_name_exists(file: str, function: str) -> None:
    module = import_module(file.removesuffix(".py").replace("/", "."))
    assert attrgetter(function)(module).__code__.co_filename == str(ROOT / file)


@pytest.fixture(scope="module")
def walks(tmp_path_factory: pytest.TempPathFactory) -> dict[Walk, Files]:
    return measure(tmp_path_factory.mktemp("walks"))


def test_no_walk_is_longer_than_its_budget(walks: dict[Walk, Files]) -> None:
    assert {t.title: files for t, files in walks.items() if not 0 < len(files) <= t.budget} == {}


def test_the_page_walks_through_just_these_files(walks: dict[Walk, Files]) -> None:
    """Its sections have the order of the walks."""
    _, *sections = (ROOT / "docs" / "walks.md").read_text().split("\n## ")
    reported = [set(re.findall(r"`((?:ccm|workers)/[\w/]+\.py)`", section)) for section in sections]
    assert reported == [set(files) for files in walks.values()]
