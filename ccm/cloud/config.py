"""Reading the --cloud-config file; what it means is the provider's business."""

from pathlib import Path

from ccm.errors import ConfigurationFault


def read_config(path: str) -> bytes:
    """The content; empty when the flag is not set. Raises `ConfigurationFault`."""
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
