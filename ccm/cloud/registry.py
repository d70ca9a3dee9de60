"""Which clouds there are: packages announce them by entry point, code may add its own."""

from collections.abc import Callable
from importlib.metadata import entry_points

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
