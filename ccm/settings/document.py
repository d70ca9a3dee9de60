"""`python -m ccm.settings.document`: the tables of docs/flags.md, from the declarations."""

from itertools import groupby

from ccm.settings.declaration import Flag, Origin
from ccm.settings.flags import flags


def tables() -> str:
    """All that stands on the page below its introduction: a table for each group."""
    parts = []
    for group, members in groupby(flags(), lambda flag: flag.group):
        head = ["| flag | variable | default | | meaning |", "|---|---|---|---|---|"]
        parts.append("\n".join([f"## {group}\n", *head, *(_row(flag) for flag in members), ""]))
    return "\n".join(parts)


def _row(flag: Flag) -> str:
    cells = (
        f"`{flag.usage}`".replace("|", "\\|"),
        f"`{flag.variable}`",
        _default(flag),
        flag.origin if flag.origin is Origin.UPSTREAM else f"*{flag.origin}*",
        flag.help + (f" Deprecated: {flag.deprecated}." if flag.deprecated else ""),
    )
    return f"| {' | '.join(cells)} |"


def _default(flag: Flag) -> str:
    text = flag.syntax.format(flag.default)
    upstream = "" if flag.upstream_default is None else f"(upstream: `{flag.upstream_default}`)"
    return " ".join(filter(None, (text and f"`{text}`", upstream)))


if __name__ == "__main__":
    print(tables(), end="")
