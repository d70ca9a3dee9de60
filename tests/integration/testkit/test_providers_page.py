"""The pages for authors of providers are true: their examples run, their tables are the code's."""

import re
from pathlib import Path
from typing import Any

import pytest

import ccm.cloud.testkit
from ccm import errors
from ccm.cloud.testkit.adapter import Adapter, Untestable
from ccm.cloud.testkit.gate import KitGate
from ccm.cloud.testkit.harness import node, node_of
from ccm.model.cloud import Gone, Instance, Unknown
from tests.docs.pages import DOCS, table_rows

PAGES = (DOCS / f"{name}.md" for name in ("provider-calls", "providers", "provider-kit"))


class Sdk:
    """Machines of two ids; it refuses when it is told to."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def list_machines(self, ids: list[str]) -> list[dict[str, str]]:
        if self.error:
            raise self.error
        known = {"m-1": "running", "m-2": "terminated"}
        return [{"id": one, "state": known[one]} for one in ids if one in known]


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    """What the page's Python defines, one block after the other."""
    names: dict[str, Any] = {"__name__": "example"}
    for page in PAGES:
        for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
            exec(compile(block, str(page), "exec"), names)
    return names


def first_cells(page: str, table: str) -> set[str]:
    """The first column of a marked table, without its heading."""
    _, *rows = table_rows(page, table)
    return {name.strip("`") for name, *_ in rows}


def test_the_example_answers_in_three_values(example: dict[str, Any]) -> None:
    instances = example["Instances"](example["Api"](KitGate(1.0), Sdk()))
    ids = {"a": "mine://m-1", "b": "mine://m-2", "c": "mine://m-3", "d": "other://m-1"}
    answers = instances.describe([node(name, provider_id) for name, provider_id in ids.items()])
    assert [type(answer) for answer in answers.values()] == [Instance, Gone, Gone, Unknown]


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (403, errors.Denied),
        (429, errors.Throttled),
        (404, errors.Refused),
        (500, errors.CloudError),
    ],
)
def test_the_example_tells_errors_by_what_to_do(
    example: dict[str, Any], status: int, error: type[Exception]
) -> None:
    sdk, gate = Sdk(), KitGate(1.0)
    sdk.error = example["SdkError"](status, 7.0)
    with pytest.raises(errors.CloudError) as raised:
        example["Api"](gate, sdk).machines(["m-1"])
    assert type(raised.value) is error
    assert getattr(raised.value, "seconds", None) == (7.0 if status == 429 else None)
    assert {call.budget for call in gate.calls} <= example["QUOTAS"].keys()


def test_the_example_of_an_adapter_is_one(example: dict[str, Any]) -> None:
    adapter = example["MineAdapter"]()
    assert isinstance(adapter, Adapter)
    adapter.reset()
    before = adapter.snapshot()
    made = adapter.create_machines(["a"])
    assert isinstance(made, list)
    assert node_of(made[0]).provider_id == "mine://a"
    assert adapter.snapshot() != before
    with pytest.raises(Untestable):
        adapter.stop_machine(made[0])


def test_every_error_is_in_the_table() -> None:
    def below(kind: type[Exception]) -> set[type[Exception]]:
        return {kind}.union(*map(below, kind.__subclasses__()))

    kinds = below(errors.CloudError)
    ours = {kind.__name__ for kind in kinds if kind.__module__ == errors.__name__}
    ours -= {"Contested"}  # which no provider raises
    assert first_cells("provider-calls.md", "errors") == ours


def test_every_area_of_the_kit_is_in_the_table() -> None:
    folder = Path(str(ccm.cloud.testkit.__file__)).parent
    areas = {path.stem.removeprefix("test_").replace("_", " ") for path in folder.glob("test_*.py")}
    assert first_cells("provider-kit.md", "areas") == areas
