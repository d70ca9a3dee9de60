"""Documents as YAML that people read: comments first, short lists on one line, nothing sorted."""

from collections.abc import Iterable
from typing import Any

import yaml

from ccm.manifests.rbac import Document

SHORT = 72  # characters of a list that stands on one line


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def represent_sequence(
        self, tag: str, sequence: Any, flow_style: bool | None = None
    ) -> yaml.SequenceNode:
        are_words = all(isinstance(item, str) and not item.startswith("-") for item in sequence)
        is_short = are_words and sum(map(len, sequence)) < SHORT
        return super().represent_sequence(tag, sequence, flow_style=is_short)


def text(head: str, documents: Iterable[Document]) -> str:
    """One YAML stream; `head` is its first comment."""
    parts = [f"# {head}\n"]
    for document in documents:
        notes = "".join(f"# {note}\n" for note in document.notes)
        body = yaml.dump(document.body, Dumper=_Dumper, sort_keys=False, width=100)
        parts.append(f"---\n{notes}{body}")
    return "".join(parts)
