"""Identifiers are the field's words: what the glossary replaced does not come back."""

import ast
import re
import textwrap
from collections.abc import Iterator

from tests.docs.pages import ROOT

REPLACED = {
    "ChoosesHosts": "SelectsNodesByLabel",
    "DropsStoppedHosts": "ExcludesStoppedNodes",
    "MayLackZones": "RegionalVolumes",
    "NamesMissingRights": "ReportsMissingPermissions",
    "ReadsTogether": "BatchesReads",
    "_end_deaf": "_exit_when_disconnected",
    "_may_hasten": "_can_run_early",
    "_ripen": "_enqueue_due",
    "_said_so": "_is_ready",
    "_sign_of_life": "_heartbeat",
    "batch_calm": "idle_window",
    "batch_lull": "join_window",
    "believe": "verify_complete",
    "outreaching": "privileged",
    "outreaching_annotations": "privileged_annotations",
    "why_not_believed": "mass_deletion_reason",
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


EXAMPLE = re.compile(r"```python\n(.*?)```", re.DOTALL)
TEMPLATE = re.compile(r"^#\[.*|^#\].*|\$\{?\w+\}?", re.MULTILINE)
"""In what `provider new` writes: marks of parts that may be left out, and names to fill in."""


def test_no_name_is_one_that_the_glossary_replaced() -> None:
    found = [
        f"{where}:{line}: {name}; write {REPLACED[name]}"
        for where, source in _sources()
        for name, line in _bound(ast.parse(source))
        if name in REPLACED
    ]
    assert not found, "\n".join(found)


def _sources() -> Iterator[tuple[str, str]]:
    """Place and text of all Python of the product, and of what authors of providers copy."""
    for folder in ("ccm", "workers"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            yield str(file.relative_to(ROOT)), file.read_text()
    for file in sorted((ROOT / "ccm/cli/new_provider").rglob("*.py.tmpl")):
        yield file.name, TEMPLATE.sub(lambda mark: "X" if "$" in mark[0] else "", file.read_text())
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for example in EXAMPLE.findall(page.read_text()):
            yield page.name, textwrap.dedent(example)


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
            case ast.arg(name) | ast.MatchAs(name=str(name)):
                yield name, node.lineno
