"""YAML as Go's readers take it: every scalar is the text that was written."""

import base64
import binascii
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import yaml

OnDuplicate = Callable[[str, int, int], None]
"""Gets a key, its line, and the line where it stood before."""

MAX_VALUES = 100_000
"""Of a document, those of aliases counted wherever they stand."""
_TAG = "tag:yaml.org,2002:"
_REMEDIES = {
    r"'\t' that cannot start": "indent with spaces, not with tabs",
    "that cannot start": "put a value that begins with a special character into quotes",
    "undefined alias": "put a value that begins with * into quotes",
    "anchor": "put a value that begins with & or * into quotes",
    "tag": "put a value that begins with ! into quotes",
    "mapping values are not allowed": "put a value with ': ' in it into quotes, or fix the indent",
    "could not find expected ':'": "write it as key: value",
    "<block end>": "fix the indent of this line",
    "end of stream": "close the quote",
    "stream end": "close each bracket",
    "escape": r"write \\ for a backslash in double quotes, or use single quotes",
}


class YamlError(ValueError):
    """A text that is not YAML. Nothing of the text is shown, since it may be a secret."""

    def __init__(self, line: int, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.line, self.problem, self.remedy = line, problem, remedy


class YamlMapping(dict[str, Any]):
    """Texts, lists, mappings, or None, by key; with the lines of the keys."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, int] = {}

    def put(self, key: str, value: Any, line: int) -> None:
        """Set a key."""
        self[key], self.lines[key] = value, line


class _Loader(yaml.SafeLoader):
    """As in Go, tabs are blanks outside indents, and the last anchor of a name counts."""

    def scan_to_next_token(self) -> None:
        with self._tabs_as_spaces(lambda: self.flow_level or not self.allow_simple_key):
            super().scan_to_next_token()

    def scan_plain_spaces(self, indent: int, start_mark: yaml.Mark) -> list[str] | None:
        with self._tabs_as_spaces(lambda: self.column >= indent):
            return super().scan_plain_spaces(indent, start_mark)

    def scan_block_scalar_ignored_line(self, start_mark: yaml.Mark) -> None:
        with self._tabs_as_spaces(lambda: True):
            super().scan_block_scalar_ignored_line(start_mark)

    @contextmanager
    def _tabs_as_spaces(self, may_be: Callable[[], object]) -> Iterator[None]:
        """PyYAML looks for spaces alone where a blank may be."""

        def peek(index: int = 0) -> str:
            found = read(index)
            return " " if found == "\t" and may_be() else found

        read = self.peek
        self.peek = peek  # type: ignore[method-assign]
        try:
            yield
        finally:
            self.peek = read  # type: ignore[method-assign]

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if not isinstance(event, yaml.AliasEvent):
            self.anchors.pop(getattr(event, "anchor", None), None)
        return super().compose_node(parent, index)


def parse_yaml(content: bytes, on_duplicate: OnDuplicate, *, merges: bool = False) -> Any:
    """What the first document holds; raises `YamlError`.

    The first of two keys of one name counts, for Go's yaml.v3 refuses both; `<<` gives what a
    mapping lacks. With `merges` it is as in yaml.v2: the last one counts, but sections of one name
    are merged, and `<<` is written over what is before it.
    """
    try:
        loader = _Loader(content)
        root = loader.get_node() if loader.check_node() else None
        return _Values(on_duplicate, merges).read(root, 0) if root else None
    except YamlError:
        raise
    except yaml.MarkedYAMLError as error:
        mark, problem = error.problem_mark, f"{error.problem} {error.context}"
        remedy = next((_REMEDIES[words] for words in _REMEDIES if words in problem), "")
        line = mark.line + 1 if mark else 0
        raise YamlError(line, "is not YAML", remedy or "fix this line") from None
    except yaml.reader.ReaderError as error:
        line = content.count(b"\n", 0, error.position) + 1
        remedy = "save the file as UTF-8, without control characters"
        raise YamlError(line, "is not text", remedy) from None
    except RecursionError:
        raise YamlError(0, "is nested too deep", "write it flat") from None
    except (ValueError, OverflowError):  # of an escape such as "\UFFFFFFFF"
        raise YamlError(0, "has an escape that is no character", "write the character") from None


class _Values:
    """Makes texts, lists and mappings of nodes."""

    def __init__(self, on_duplicate: OnDuplicate, merges: bool) -> None:
        self._on_duplicate, self._merges = on_duplicate, merges
        self._count, self._open = 0, set[int]()

    def read(self, node: yaml.Node, depth: int) -> Any:
        """The value of a node; `depth` is 0 for the document's."""
        self._count += 1
        if self._count > MAX_VALUES or id(node) in self._open:
            raise YamlError(_line(node), "repeats too much by aliases", "write it without them")
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.ScalarNode):
                return self._text(node)
            if isinstance(node, yaml.SequenceNode):
                return [self.read(item, depth + 1) for item in node.value]
            assert isinstance(node, yaml.MappingNode)
            return self._mapping(node, depth)
        finally:
            self._open.discard(id(node))

    def _text(self, node: yaml.ScalarNode) -> str | None:
        if node.tag == f"{_TAG}null":
            return None
        if node.tag != f"{_TAG}binary":
            return str(node.value)
        try:
            return base64.b64decode(node.value.replace("\n", ""), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise YamlError(_line(node), "is not base64", "write it without !!binary") from None

    def _mapping(self, node: yaml.MappingNode, depth: int) -> YamlMapping:
        found, merged = YamlMapping(), YamlMapping()
        seen: dict[str, int] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == f"{_TAG}null":
                raise YamlError(
                    _line(key), "has a key that is not a text", "write it as key: value"
                )
            text, line = key.value, _line(key)
            if text in seen:
                self._on_duplicate(text, line, seen[text])
                if not self._merges:
                    continue
            seen[text] = line
            if key.tag == f"{_TAG}merge":
                for item in self._bases(value, depth):
                    self._update(found if self._merges else merged, item, depth)
            else:
                self._put(found, text, self.read(value, depth + 1), line, depth)
        for text in merged.keys() - found.keys():
            found.put(text, merged[text], merged.lines[text])
        return found

    def _bases(self, node: yaml.Node, depth: int) -> Iterator[YamlMapping]:
        """The mappings that `<<` names, those that count less first."""
        is_list = isinstance(node, yaml.SequenceNode)
        for item in reversed(node.value) if is_list else (node,):
            if not isinstance(item, yaml.MappingNode):
                raise YamlError(_line(node), "merges what is not a mapping", "remove <<")
            yield self.read(item, depth)

    def _update(self, found: YamlMapping, other: YamlMapping, depth: int) -> None:
        for key, value in other.items():
            self._put(found, key, value, other.lines[key], depth)

    def _put(self, found: YamlMapping, key: str, value: Any, line: int, depth: int) -> None:
        known = found.get(key)
        is_section = self._merges and depth == 0
        if is_section and isinstance(known, YamlMapping) and isinstance(value, YamlMapping):
            self._update(known, value, depth + 1)
        else:
            found.put(key, value, line)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
