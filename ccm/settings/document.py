"""`python -m ccm.settings.document`: the page docs/flags.md, from the declarations."""

from itertools import groupby

from ccm.settings.declaration import Flag, Origin
from ccm.settings.flags import flags

HEAD = """\
# Flags of `ccm-supervisor start`

Made by `make docs` from the code; a test compares them. `cloud-controller-manager` is the same
command under upstream's name, and takes the same flags.

**How a flag is written.** `--name=value` or `--name value`; `_` in a name counts as `-`. A boolean
stands alone or takes its value after `=`. Durations are `1h2m3s` or `100ms`. Where the syntax ends
with `…`, several values are separated by commas, and the flag may be repeated. Anything
that is not a flag is an error. All errors are reported at once, with exit code 78. `-h`, `--help`
shows the flags, `--version` the version; `--version=raw` adds Python's; `--version=vX.Y.Z` changes
nothing.

**Where a value comes from**: the first of these that sets it, lists as a whole:

1. the command line;
2. the environment: `CCM_` and the name in capitals, as `CCM_NODE_WORKERS=2`;
3. the file of `--config` (or `CCM_CONFIG`): a YAML mapping of names to values, lists and mappings
   as YAML has them. An unknown or repeated name is an error;
4. the default.

```yaml
cloud-provider: simulated
node-workers: 2
controllers: ["*", -route]
cloud-rate: {read: 20, write: 5}
```

`ccm-supervisor reload` and SIGHUP read `v` again from the file; other flags need a restart.

**Marks.** *ours*: upstream has no such flag. *no effect*: upstream's flag is accepted and checked,
and changes nothing here; a startup notice in the log says so. Where our default differs, upstream's
stands behind it; [differences](differences.md) says why. `--feature-gates` knows upstream's names,
and any other is an error.
"""


def page() -> str:
    """The whole page, as Markdown."""
    parts = [HEAD]
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
    print(page(), end="")
