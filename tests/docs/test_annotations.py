"""The reference of annotations says what the code reads: names, ranges, defaults, choices."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ccm.model.service import Service
from ccm.providers.aws.elb import annotations as aws
from ccm.providers.incus.config import LONGEST_CHECK, BalancerSection
from tests.docs.annotations import CLOUDS, rows, tables
from tests.docs.pages import DOCS, ROOT

BY_NAME = {(row.cloud, row.name): row for row in rows()}
FOLDERS = {"aws": "aws/elb", "openstack": "openstack/lb"}

Read = tuple[str, str, list[Any]]  # the reader, the annotation, its other arguments or None


def read_in(folder: Path) -> Iterator[Read]:
    """Each annotation whose name stands where it is read, with the arguments that are literals."""
    for file in sorted(folder.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                first, *others = map(_literal, node.args)
                if isinstance(first, str):
                    yield node.func.attr, first, others


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def test_every_annotation_of_the_code_has_a_row_and_no_other_has() -> None:
    assert len(BY_NAME) == len(rows())
    reported = {cloud: {name for of, name in BY_NAME if of == cloud} for cloud in CLOUDS}
    assert reported == {cloud: set(known.names) for cloud, known in CLOUDS.items()}


@pytest.mark.parametrize("cloud", FOLDERS)
def test_ranges_and_defaults_are_those_of_the_code(cloud: str) -> None:
    checked = set()
    for reader, name, others in read_in(ROOT / "ccm" / "providers" / FOLDERS[cloud]):
        if (row := BY_NAME.get((cloud, name))) is None:
            continue
        if reader == "boolean":
            assert row.values == "true, false", name
        elif reader == "integer":
            default, least, *most = others
            span = f"from {least}" if not most else f"{least}–{most[0]}"
            assert most == [None] or row.values == span, name
            assert default is None or row.default == str(default), name
            assert least <= int(row.example), name
        else:
            continue
        checked.add(name)
    assert len(checked) >= 5


def test_the_counts_of_incus_are_those_of_the_code() -> None:
    for name, default in BalancerSection().check_counts.items():
        row = BY_NAME["incus", f"health-check-{name}"]
        assert (row.values, row.default) == (f"1–{LONGEST_CHECK}", str(default))


@pytest.mark.parametrize("elb_type", aws.SUPPORTED_ANNOTATIONS)
def test_the_examples_for_aws_have_an_effect(elb_type: str) -> None:
    names = aws.SUPPORTED_ANNOTATIONS[elb_type]
    given = {f"{aws.PREFIX}{name}": BY_NAME["aws", name].example for name in names}
    read = aws.Annotations.for_type(Service({"metadata": {"annotations": given}}), elb_type)
    assert read.values.keys() == names
    assert not read.warnings


def test_the_tables_of_the_page_are_made_from_the_rows() -> None:
    _, heading, reported = (DOCS / "annotations.md").read_text().partition("## ")
    assert heading + reported == "\n".join(tables()), "make docs"
