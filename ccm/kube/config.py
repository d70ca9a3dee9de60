"""The `RestConfig` that the flags name, read by the `kubernetes` package's own loader."""

import logging
import os
import re
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config

from ccm.errors import ConfigurationFault
from ccm.http import Server
from ccm.kube.client import RestConfig

log = logging.getLogger(__name__)

REREAD_INTERVAL = 60.0  # seconds, as upstream reads a token file again
_DEFAULT = Path("~/.kube/config")

Load = Callable[[Configuration], Awaitable[None]]


async def load(
    kubeconfig: str = "", master: str = "", reread_interval: float = REREAD_INTERVAL
) -> RestConfig:
    """How to reach the API server; raises `ConfigurationFault` when nothing usable says so.

    Order as upstream: `--kubeconfig`, else the Pod's service account, else the default kubeconfig;
    `--master` overrides the address of any of them.
    """
    configuration = Configuration()
    if kubeconfig:
        await _load_file(Path(kubeconfig), configuration, reread_interval)
    elif os.environ.get("KUBERNETES_SERVICE_HOST"):
        await _load_pod_account(configuration, reread_interval)
    elif not master:
        await _load_file(_default_file(), configuration, reread_interval)
    if master:
        if not re.match(r"https?://", master):
            raise ConfigurationFault(
                "--master", f"{master!r} is not a URL", "write it like https://host:6443"
            )
        configuration.host = master
    return RestConfig(_server(configuration), partial(_bearer, configuration))


def _server(configuration: Configuration) -> Server:
    return Server(
        url=configuration.host.rstrip("/"),
        ca_file=configuration.ssl_ca_cert or "",
        cert_file=configuration.cert_file or "",
        key_file=configuration.key_file or "",
        tls_name=configuration.tls_server_name or "",
        is_verified=configuration.verify_ssl,
        is_strict=not configuration.disable_strict_ssl_verification,
    )


async def _bearer(configuration: Configuration) -> str:
    """The token as it is now, without the `Bearer ` of a header."""
    value = await configuration.get_api_key_with_prefix("BearerToken") or ""
    return value.partition(" ")[2].strip()


def _default_file() -> Path:
    first = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    path = Path(first) if first else _DEFAULT.expanduser()
    if not path.exists():
        raise ConfigurationFault(
            "--kubeconfig", "is not given, and this is not a Pod", "give the path of a kubeconfig"
        )
    return path


def _check_readable(path: Path) -> None:
    try:
        path.read_bytes()
    except OSError as error:
        raise ConfigurationFault(
            "--kubeconfig",
            f"{path} cannot be read: {error.strerror}",
            "give the path of a kubeconfig that this user may read",
        ) from error


async def _load_file(path: Path, configuration: Configuration, reread_interval: float) -> None:
    _check_readable(path)
    try:
        loader = await load_kube_config(str(path), client_configuration=configuration)
    except Exception as error:  # the loader lets out yaml's, ssl's and its own errors
        detail = " ".join(str(error).split())
        raise ConfigurationFault(
            "--kubeconfig", f"{path} is not usable: {detail}", "check it with 'kubectl config view'"
        ) from error
    if configuration.api_key.get("BearerToken", "").startswith("Basic "):
        raise _unusable(path, "username and password", "give the user a token or a certificate")
    if configuration.proxy:
        raise _unusable(path, "proxy-url", "name a server that is reached without a proxy")
    configuration.refresh_api_key_hook = _renewal(loader.load_and_set, reread_interval)


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


async def _load_pod_account(configuration: Configuration, reread_interval: float) -> None:
    try:
        await _read_pod_account(configuration)
    except ConfigException as error:
        raise ConfigurationFault(
            "--kubeconfig",
            f"is not given, and the Pod's service account is not usable: {error}",
            "mount the service account token, or give a kubeconfig",
        ) from error
    configuration.refresh_api_key_hook = _renewal(_read_pod_account, reread_interval)


async def _read_pod_account(configuration: Configuration) -> None:
    load_incluster_config(client_configuration=configuration, try_refresh_token=False)
