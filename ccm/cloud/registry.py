"""Which clouds there are, by entry point or added in code, and their configuration file."""

from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

from ccm.cloud.interface import CloudProvider
from ccm.errors import ConfigurationFault

GROUP = "ccm.cloud_providers"

Factory = Callable[[], CloudProvider]

_in_code: dict[str, Factory] = {}


def register_cloud_provider(name: str, factory: Factory) -> None:
    """Add a provider from code, before the settings are read; a name can be taken once."""
    if name in known_providers():
        raise ValueError(f"cloud provider {name!r} is registered already")
    _in_code[name] = factory


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
    check_name(name)
    if name in _in_code:
        return _in_code[name]()
    (point, *_) = entry_points(group=GROUP, name=name)
    try:
        factory: Factory = point.load()
    except ImportError as error:
        raise ConfigurationFault(
            "--cloud-provider",
            f"{name!r} cannot be imported: {error}",
            f"install it with: pip install 'ccm-supervisor[{name}]'",
        ) from error
    return factory()


def read_config(path: str) -> bytes:
    """The content of `--cloud-config`; empty when the flag is not set.

    Raises `ConfigurationFault`. What the content means is the provider's business.
    """
    if not path:
        return b""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigurationFault(
            "--cloud-config",
            f"{path} cannot be read: {error.strerror}",
            "give the path of a file that this user may read",
        ) from error
