"""Every flag once: its name, default, meaning and syntax; where its value comes from."""

from ccm.settings.declaration import Flag, Origin
from ccm.settings.flags import Settings, flags
from ccm.settings.raw_values import RawValue
from ccm.settings.reading import CommandLine, Reading, read, read_arguments
from ccm.settings.syntax import KNOWN_FEATURE_GATES, CertKey

__all__ = [
    "KNOWN_FEATURE_GATES",
    "CertKey",
    "CommandLine",
    "Flag",
    "Origin",
    "RawValue",
    "Reading",
    "Settings",
    "flags",
    "read",
    "read_arguments",
]
