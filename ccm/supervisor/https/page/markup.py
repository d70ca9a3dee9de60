"""HTML made of values: what is not markup yet is escaped, so no name from outside becomes code."""

from html import escape

VOID = ("meta",)  # elements without content


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(tag: str, /, *content: object, **attributes: str) -> Markup:
    """`<tag …>content</tag>`; the attribute `http_equiv` is `http-equiv`, `class_` is `class`."""
    shown = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for name, value in attributes.items()
    )
    end = "" if tag in VOID else f"{join(*content)}</{tag}>"
    return Markup(f"<{tag}{shown}>{end}")


def join(*content: object) -> Markup:
    """The parts one after the other, escaped where they are no markup."""
    return Markup(
        "".join(part if isinstance(part, Markup) else escape(str(part)) for part in content)
    )
