"""Flags from environment variables: CCM_NODE_WORKERS for --node-workers."""

from collections.abc import Mapping

from ccm.settings.given import Given, Source
from ccm.settings.values import flags

PREFIX = "CCM_"
NOT_FLAGS = frozenset({"CCM_SUPERVISOR_FLAGS"})
"""Variables of our own that are no flags: systemd's unit splits this one into a command line."""


def read_environment(environ: Mapping[str, str]) -> Source:
    """What the environment says; an empty variable is an empty value, as `--flag=` is."""
    return Source(
        {
            flag.field: Given((environ[flag.variable],), flag.variable)
            for flag in flags()
            if flag.variable in environ
        }
    )


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Variables that look like flags and are none, perhaps by a slip."""
    known = NOT_FLAGS | {flag.variable for flag in flags()}
    return sorted(name for name in environ if name.startswith(PREFIX) and name not in known)
