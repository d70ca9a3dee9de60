"""Text of others (names, provider IDs, messages) as a terminal may have it: nothing commands it."""

from typing import Any

import orjson


def printable(text: object) -> str:
    """The text on one line: what cannot be printed is written as Python would write it."""
    plain = str(text)
    if plain.isprintable():
        return plain
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in plain)


def printable_values(value: Any) -> Any:
    """The same JSON value with every text in it printable, keys too."""
    match value:
        case dict():
            return {printable(key): printable_values(item) for key, item in value.items()}
        case list():
            return [printable_values(item) for item in value]
        case str():
            return printable(value)
    return value


def printable_json(value: Any, option: int = 0, **how: Any) -> str:
    """The value as JSON, in which all that cannot be printed stands as an escape of JSON."""
    text = orjson.dumps(value, option=option, **how).decode()
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else _json_escape(c) for c in text)


def _json_escape(char: str) -> str:
    units = char.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
