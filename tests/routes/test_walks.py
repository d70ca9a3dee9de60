"""A new object passes through few files, so that somebody can read what becomes of it."""

from importlib import import_module
from operator import attrgetter

import pytest

from tests.routes.recorder import POINTS
from tests.routes.tables import BACKGROUND, WALKS, Walk
from tests.routes.walks import Files, measure


@pytest.fixture(scope="module")
def walks(tmp_path_factory: pytest.TempPathFactory) -> dict[Walk, Files]:
    return measure(tmp_path_factory.mktemp("routes"))


@pytest.mark.parametrize(("file", "function"), sorted({*POINTS, *BACKGROUND}))
def test_a_function_that_the_tables_name_exists(file: str, function: str) -> None:
    assert attrgetter(function)(import_module(file.removesuffix(".py").replace("/", ".")))


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.title.partition(":")[0])
def test_a_walk_is_not_longer_than_its_budget(walks: dict[Walk, Files], walk: Walk) -> None:
    assert len(walks[walk]) <= walk.budget, walks[walk]
