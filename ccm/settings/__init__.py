"""Every flag once: its name, default, meaning and check; where its value comes from."""

from ccm.settings.arguments import CommandLine, read_arguments
from ccm.settings.checks import check
from ccm.settings.declaration import Flag, Origin
from ccm.settings.groups.process import default_runtime_dir
from ccm.settings.parsers import CertKey
from ccm.settings.reading import Reading, parse, read
from ccm.settings.values import Settings, flags

__all__ = [
    "CertKey",
    "CommandLine",
    "Flag",
    "Origin",
    "Reading",
    "Settings",
    "check",
    "default_runtime_dir",
    "flags",
    "parse",
    "read",
    "read_arguments",
]
