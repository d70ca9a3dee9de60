"""A new object passes through few files, so that someone can read what becomes of it."""

import re
from importlib import import_module
from operator import attrgetter

import pytest

from tests.docs.walks.recorder import BACKGROUND, GATE, POINTS, ROOT, WALKS, Line, Walk
from tests.docs.walks.walks import GETS_MESSAGE, SUPERVISOR, Files, files_of, measure


@pytest.mark.parametrize(("file", "function"), sorted({*POINTS, *BACKGROUND}))
def test_a_function_that_the_tables_name_exists(file: str, function: str) -> None:
    module = import_module(file.removesuffix(".py").replace("/", "."))
    assert attrgetter(function)(module).__code__.co_filename == str(ROOT / file)


def test_what_the_supervisor_finishes_before_a_walk_reaches_it_is_not_of_that_walk() -> None:
    """It was sending the Node to other workers yet, on a busy machine, in each repetition."""
    flush = ("call", "ccm/supervisor/delivery.py", "DeliveryQueue.flush")
    request = ("call", "ccm/supervisor/budget.py", "Budget.request")
    events = [
        ("service", ("call", *GATE)),  # of another worker, which gets the Node as well
        ("node-0", ("call", *GATE)),
        (SUPERVISOR, flush),
        (SUPERVISOR, GETS_MESSAGE),
        (SUPERVISOR, request),
        ("service", ("return", *GATE)),
        ("node-0", ("return", *GATE)),
    ]
    lines = [
        Line(float(10 * repetition + at), process, *event, "")
        for repetition in range(3)
        for at, (process, event) in enumerate(events)
    ]
    [walk] = [walk for walk in WALKS if walk.start == GATE]
    created = {f"vm-{repetition}": 10.0 * repetition for repetition in range(3)}
    assert set(files_of(walk, lines, created)) == {GATE[0], GETS_MESSAGE[1], request[1]}


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
