"""A new object passes through few files, so that somebody can read what becomes of it."""

from importlib import import_module
from operator import attrgetter
from pathlib import Path

import pytest

from tests.routes.recorder import BACKGROUND, POINTS
from tests.routes.walks import measure


@pytest.mark.parametrize(("file", "function"), sorted({*POINTS, *BACKGROUND}))
def test_a_function_that_the_tables_name_exists(file: str, function: str) -> None:
    assert attrgetter(function)(import_module(file.removesuffix(".py").replace("/", ".")))


def test_no_walk_is_longer_than_its_budget(tmp_path: Path) -> None:
    walks = measure(tmp_path)
    assert {t.title: files for t, files in walks.items() if not 0 < len(files) <= t.budget} == {}
