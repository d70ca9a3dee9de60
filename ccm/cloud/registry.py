"""Which clouds there are, by entry point or added in code, and their configuration file."""

import shlex
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from ccm.cloud.interface import CloudProvider
from ccm.directories import read_bounded
from ccm.errors import ConfigurationFault

GROUP = "ccm.cloud_providers"

Factory = Callable[[], CloudProvider]

_in_code: dict[str, Factory] = {}


def register_cloud_provider(name: str, factory: Factory) -> None:
    """Add a provider from code, before the settings are read; a name can be taken once."""
    if name in known_providers():
        raise ValueError(f"cloud provider {name!r} is registered already")
    _in_code[name] = factory


def keep_provider(name: str) -> None:
    """Import it for this process and its forks, which look for no package any more."""
    _in_code[name] = provider_factory(name)


def known_providers() -> list[str]:
    """Names that `--cloud-provider` accepts; nothing is imported to find them."""
    return sorted({point.name for point in entry_points(group=GROUP)} | _in_code.keys())


def check_name(name: str) -> None:
    """Raise `ConfigurationFault` unless there is a provider of this name."""
    if name not in known_providers():
        known = ", ".join(known_providers()) or "none is installed"
        raise ConfigurationFault(
            "--cloud-provider", f"{name!r} is not known", f"choose one of: {known}"
        )


def load_provider(name: str) -> CloudProvider:
    """A new provider object; imports that provider's package and no other."""
    return provider_factory(name)()


def provider_factory(name: str) -> Factory:
    """What makes such objects."""
    if name in _in_code:
        return _in_code[name]
    points = [*entry_points(group=GROUP, name=name)]  # a look at all packages: milliseconds
    if not points:
        check_name(name)
    try:
        return points[0].load()  # type: ignore[no-any-return]
    except ImportError as error:
        raise ConfigurationFault(
            "--cloud-provider",
            f"{name!r} cannot be imported: {error}",
            _what_to_install(points[0]),
        ) from error


def _what_to_install(point: EntryPoint) -> str:
    """The remedy: what the extra of the provider's name asks for, as its package says."""
    required = (point.dist.requires if point.dist else None) or []
    parts = [line.partition(";") for line in required]
    mine = [text.strip() for text, _, when in parts if f'extra == "{point.name}"' in when]
    if not mine:
        return f"install what the package of {point.name!r} needs"
    return f"install it with: pip install {shlex.join(mine)}"


def read_config(path: str) -> bytes:
    """The content of `--cloud-config`; empty when the flag is not set.

    Raises `ConfigurationFault`. What the content means is the provider's business.
    """
    if not path:
        return b""
    try:
        return read_bounded(Path(path))
    except OSError as error:
        raise ConfigurationFault(
            "--cloud-config",
            f"{path} cannot be read: {error.strerror}",
            "give the path of a file that this user may read",
        ) from error
