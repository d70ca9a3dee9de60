"""Access by a kubeconfig as the `kubernetes` package reads it: plugins, inline certificates, all.

The package takes a third of a start to load, so it is imported only for what needs it.
"""

import atexit
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from kubernetes.aio.client import Configuration
from kubernetes.aio.config import kube_config, load_kube_config
from kubernetes.aio.config.exec_provider import ExecProvider

from ccm import limited_process
from ccm.directories import check_private, default_runtime_dir, read_bounded, replace_file
from ccm.errors import ConfigurationFault, NoCredentials
from ccm.kube.client import RestConfig
from ccm.tls import Server

log = logging.getLogger(__name__)

Load = Callable[[Configuration], Awaitable[None]]


class LimitedPlugin(ExecProvider):  # type: ignore[misc]
    """A credential plugin that is ended with all that it has started.

    The package reads all of the output before any of the errors, whose pipe would be full by then:
    a process between them reads both. At a terminal it may ask a person, and has all the time.
    """

    args: list[str]

    def __init__(self, exec_config: Any) -> None:
        super().__init__(exec_config)
        if not (sys.stdin and sys.stdin.isatty()):
            limited = [sys.executable, "-I", limited_process.__file__]
            self.args = [*limited, f"{limited_process.TIMEOUT:g}", *self.args]


class BoundedFile(kube_config.FileOrData):  # type: ignore[misc]
    """A file of the kubeconfig, such as of a token: one that no one waits for."""

    def as_data(self) -> str:
        if self._file and not self._data:
            return read_bounded(Path(self._file)).decode()
        return str(self._data or "")


async def load_file(path: Path, reread_interval: float, has_plugin: bool) -> RestConfig:
    """What a kubeconfig says; raises `ConfigurationFault` when that is of no use.

    Without a word of the package, a plugin that fails would leave us anonymous: `NoCredentials`.
    """
    configuration = Configuration()
    kube_config.ExecProvider, kube_config.FileOrData = LimitedPlugin, BoundedFile
    try:
        loader = await load_kube_config(
            str(path), client_configuration=configuration, temp_file_path=_directory()
        )
        _keep_files(configuration, path)
    except Exception as error:  # the loader lets out yaml's, ssl's and its own errors
        detail = " ".join(str(error).split())
        raise ConfigurationFault(
            "--kubeconfig", f"{path} is not usable: {detail}", "check it with 'kubectl config view'"
        ) from error
    if configuration.api_key.get("BearerToken", "").startswith("Basic "):
        raise _unusable(path, "username and password", "give the user a token or a certificate")
    if has_plugin and not (configuration.api_key or configuration.cert_file):
        raise NoCredentials(
            "--kubeconfig",
            f"the credential plugin in {path} gives no credentials",
            "run it by hand; its output is in the log",
        )

    async def read(fresh: Configuration) -> None:
        await loader.load_and_set(fresh)
        _keep_files(fresh, path)

    configuration.refresh_api_key_hook = _renewal(read, reread_interval)
    return RestConfig(_server(configuration), partial(_bearer, configuration))


def _directory() -> str | None:
    """Where inline certificates are written, which each worker reads: in /tmp no file grows old."""
    directory = Path(default_runtime_dir())
    try:
        check_private(directory)
    except OSError:  # of a command, beside which no supervisor runs
        return None
    return str(directory.absolute())


def _keep_files(configuration: Configuration, source: Path) -> None:
    """Give inline certificates, and those of plugins, names that stay: workers read them again."""
    if (directory := _directory()) is None:
        return
    name = f"{os.getpid()}-{sha256(bytes(source.absolute())).hexdigest()[:16]}"
    for part in ("ssl_ca_cert", "cert_file", "key_file"):
        file = Path(getattr(configuration, part) or "/")
        if str(file.parent) == directory and file.exists():
            kept = Path(directory, f"{name}.{part}")
            if not kept.exists():
                atexit.register(kept.unlink, missing_ok=True)
            replace_file(kept, read_bounded(file))
            setattr(configuration, part, str(kept))
    kube_config._cleanup_temp_files()


def _server(configuration: Configuration) -> Server:
    return Server(
        url=configuration.host.rstrip("/"),
        ca_file=configuration.ssl_ca_cert or "",
        cert_file=configuration.cert_file or "",
        key_file=configuration.key_file or "",
        tls_name=configuration.tls_server_name or "",
        is_verified=configuration.verify_ssl,
    )


async def _bearer(configuration: Configuration) -> str:
    """The token as it is now, without the `Bearer ` of a header."""
    value = await configuration.get_api_key_with_prefix("BearerToken") or ""
    return value.partition(" ")[2].strip()


def _unusable(path: Path, what: str, remedy: str) -> ConfigurationFault:
    return ConfigurationFault("--kubeconfig", f"{what} in {path} cannot be used", remedy)


def _renewal(read: Load, interval: float) -> Load:
    """Reads credentials again before a request: a token file changes, a plugin's token expires."""
    due, has_failed = time.monotonic() + interval, False

    async def renew(configuration: Configuration) -> None:
        nonlocal due, has_failed
        if time.monotonic() < due:
            return
        due = time.monotonic() + interval  # concurrent requests use what there is
        fresh = Configuration()
        try:
            await read(fresh)
        except Exception:  # around one callback; what we have may still be valid
            if not has_failed:
                log.warning("credentials not read again", exc_info=True)
            has_failed = True
            return
        configuration.api_key, has_failed = fresh.api_key, False

    return renew
