"""YAML as people mean it: every scalar is the text that was written, no key stands twice."""

from pathlib import Path
from typing import Any

import yaml

NULLS = ("~", "null", "Null", "NULL")


class _Loader(yaml.BaseLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            is_text = isinstance(key, yaml.ScalarNode)
            if not is_text or key.value in seen:
                problem = f"{key.value!r} is there twice" if is_text else "a key is not a text"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep=True)

    def construct_scalar(self, node: yaml.ScalarNode) -> Any:
        is_null = node.style is None and node.value in NULLS
        return "" if is_null else super().construct_scalar(node)


def read_yaml(path: str) -> Any:
    """The file's one document; a `ValueError` reads `problem|remedy`."""
    try:
        return yaml.load(Path(path).read_bytes(), _Loader)
    except OSError as error:
        why = error.strerror
        raise ValueError(f"cannot be read: {why}|give a file that this user may read") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark else ""
        what = getattr(error, "problem", None) or "it is not text"
        raise ValueError(f"is not understood: {what}{where}|correct the file") from error
