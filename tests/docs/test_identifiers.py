"""Identifiers are the field's words: what the glossary replaced does not come back."""

import ast
from collections.abc import Iterator
from pathlib import Path

import ccm
import workers

REPLACED = {
    "one": "item, or what it is; only beside `other` of two that are compared",
    "there": "current",
    "none": "error, or what is missing",
    "behind": "backends",
    "told": "fields or reply",
    "saw": "observe",
    "follow": "plan_update",
    "absorb": "apply",
    "doubts": "incomplete_reasons",
    "believed": "trusted",
    "witnesses": "evidence",
    "work_off": "run_until_done",
    "is_through": "is_done",
    "trouble": "last_error",
    "standstill_seconds": "seconds_since_event",
    "Ask": "PendingRequest",
    "Built": "PendingCreation",
    "Known": "CachedMembers",
    "Spending": "BudgetStats",
    "Turns": "FairQueue",
    "Waits": "WaitStats",
}


def test_no_name_is_one_that_the_glossary_replaced() -> None:
    folders = [Path(str(package.__file__)).parent for package in (ccm, workers)]
    found = [
        f"{file.relative_to(folder.parent)}:{line}: {name}; write {REPLACED[name]}"
        for folder in folders
        for file in sorted(folder.rglob("*.py"))
        for name, line in _bound(ast.parse(file.read_text()))
        if name in REPLACED
    ]
    assert not found, "\n".join(found)


def _bound(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Each name that the code gives something, and its line."""
    for node in ast.walk(tree):
        match node:
            case ast.arguments(args=[ast.arg("one"), ast.arg("other"), *_]):
                node.args[0].arg = "left"
            case ast.Name(str(name), ast.Store()) | ast.ExceptHandler(name=str(name)):
                yield name, node.lineno
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
                yield name, node.lineno
            case ast.arg(name):
                yield name, node.lineno
