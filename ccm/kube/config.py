"""The `RestConfig` that the flags name: a kubeconfig, or the account of the Pod that we are in."""

import logging
import os
import re
import time
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping, Set
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ccm.directories import read_bounded
from ccm.errors import ConfigurationFault
from ccm.kube.client import RestConfig, TokenFunc
from ccm.model.objects import mapping, objects, text
from ccm.proxy import check_environment, read_proxy
from ccm.tls import Server
from ccm.yaml_document import YamlError, parse_yaml

log = logging.getLogger(__name__)

REREAD_INTERVAL = 60.0  # seconds, as upstream reads a token file again
RENEW_INTERVAL = 5.0  # seconds between two reads of credentials that are refused
POD_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_DEFAULT = Path("~/.kube/config")

_PLAIN_CLUSTER = {
    "server",
    "certificate-authority",
    "certificate-authority-data",
    "tls-server-name",
    "insecure-skip-tls-verify",
    "proxy-url",
}
_PLAIN_USER = {"token", "tokenFile", "client-certificate", "client-key"}
_ACTING_AS = ("as", "as-uid", "as-groups", "as-user-extra")


async def load(
    kubeconfig: str = "", master: str = "", reread_interval: float = REREAD_INTERVAL
) -> RestConfig:
    """How to reach the API server; raises `ConfigurationFault` when nothing usable says so.

    Order as upstream: `--kubeconfig`, else the Pod's service account, else the default kubeconfig;
    `--master` overrides the address of any of them.
    """
    check_environment()
    credentials = _Credentials(partial(_read, kubeconfig, master, reread_interval))
    access = await credentials.read()
    return replace(access, bearer=credentials.bearer, renew=credentials.renew)


class _Credentials:
    """What a source says of us, all of which is read again when the API server refuses it."""

    def __init__(self, read: Callable[[], Awaitable[RestConfig]]) -> None:
        self._read = read
        self._access = RestConfig(Server(""))
        self._due = 0.0

    async def read(self) -> RestConfig:
        """Raises `ConfigurationFault`: another server than before may be another cluster."""
        access, before = await self._read(), self._access.server.url
        if before not in ("", access.server.url):
            problem = f"names {access.server.url} now, and named {before} at the start"
            raise ConfigurationFault("--kubeconfig", problem, "restart to go there")
        self._access = access
        return access

    async def bearer(self) -> str:
        return await self._access.bearer()

    async def renew(self) -> Server:
        """Read again, unless that was a moment ago; without success all stays as it was."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + RENEW_INTERVAL
            try:
                await self.read()
                log.info("credentials refused and read again")
            except ConfigurationFault as fault:
                log.warning("credentials not read again", extra={"why": str(fault)})
        return self._access.server


async def _read(kubeconfig: str, master: str, reread_interval: float) -> RestConfig:
    if kubeconfig:
        access = await _load_file(Path(kubeconfig), reread_interval)
    elif os.environ.get("KUBERNETES_SERVICE_HOST"):
        access = _pod_account(reread_interval)
    elif not master:
        access = await _load_file(_default_file(), reread_interval)
    else:
        access = RestConfig(Server(""))
    if not master:
        return access
    if not re.match(r"https?://", master):
        raise ConfigurationFault(
            "--master", f"{master!r} is not a URL", "write it like https://host:6443"
        )
    return replace(access, server=replace(access.server, url=master.rstrip("/")))


def _default_file() -> Path:
    first = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    path = Path(first) if first else _DEFAULT.expanduser()
    if not path.exists():
        raise ConfigurationFault(
            "--kubeconfig", "is not given, and this is not a Pod", "give the path of a kubeconfig"
        )
    return path


async def _load_file(path: Path, reread_interval: float) -> RestConfig:
    try:
        content = read_bounded(path)
    except OSError as error:
        raise ConfigurationFault(
            "--kubeconfig",
            f"{path} cannot be read: {error.strerror}",
            "give the path of a kubeconfig that this user may read",
        ) from error
    try:
        document = mapping(parse_yaml(content, lambda *_: None, merges=True))
    except YamlError:
        document = {}
    context = _named(document, "contexts", text(document.get("current-context")))
    cluster = _named(document, "clusters", text(context.get("cluster")))
    user = _named(document, "users", text(context.get("user")))
    if acting := next((key for key in _ACTING_AS if user.get(key)), ""):
        problem = f"{acting} in {path} is not supported"
        raise ConfigurationFault("--kubeconfig", problem, "give credentials of that account itself")
    access = _read_plain(path, cluster, user, reread_interval)
    if access is None:
        from ccm.kube import package_config  # loaded for what needs it

        access = await package_config.load_file(path, reread_interval, "exec" in user)
    return replace(access, server=replace(access.server, proxy=_proxy_url(path, cluster)))


def _proxy_url(path: Path, cluster: Mapping[str, Any]) -> str:
    """The proxy that a kubeconfig names, in the place of that of the environment."""
    url = text(cluster.get("proxy-url"))
    try:
        if url:
            read_proxy(url)
    except ValueError as error:
        raise ConfigurationFault(
            "--kubeconfig", f"proxy-url in {path} {error}", "write it like http://host:3128"
        ) from error
    return url


# What needs no package: files, and tokens.


def _read_plain(
    path: Path, cluster: Mapping[str, Any], user: Mapping[str, Any], reread_interval: float
) -> RestConfig | None:
    """What these say; None when there is more to it than files and a token."""
    is_plain = _is_plain(cluster, _PLAIN_CLUSTER) and _is_plain(user, _PLAIN_USER)
    insecure = cluster.get("insecure-skip-tls-verify", "false")
    if not is_plain or "server" not in cluster or insecure not in ("true", "false"):
        return None
    files = {
        name: path.parent / value
        for name, value in {**cluster, **user}.items()
        if name in ("certificate-authority", "tokenFile", "client-certificate", "client-key")
    }
    if not all(file.is_file() for file in files.values()):
        return None
    inline = cluster.get("certificate-authority-data", "")
    try:
        server = Server(
            url=cluster["server"].rstrip("/"),
            ca_file="" if inline else str(files.get("certificate-authority", "")),
            ca_data=b64decode(inline).decode(),
            cert_file=str(files.get("client-certificate", "")),
            key_file=str(files.get("client-key", "")),
            tls_name=cluster.get("tls-server-name", ""),
            is_verified=insecure == "false",
        )
        return RestConfig(server, _bearer(user, files.get("tokenFile"), reread_interval))
    except (OSError, ValueError):
        return None


def _bearer(user: Mapping[str, str], file: Path | None, reread_interval: float) -> TokenFunc:
    if file:
        return _TokenFile(file, reread_interval).bearer

    async def bearer() -> str:
        return user.get("token", "").strip()

    return bearer


def _named(document: Mapping[str, Any], kind: str, name: str) -> Mapping[str, Any]:
    """The entry of this name in a list such as `clusters`, where it is below `cluster`."""
    found = [record for record in objects(document.get(kind)) if record.get("name") == name]
    entry = mapping(found[0].get(kind.removesuffix("s"))) if found else {}
    return {key: value for key, value in entry.items() if value is not None}


def _is_plain(entry: Mapping[str, Any], known: Set[str]) -> bool:
    """Whether the entry is there and has nothing but texts of what is known."""
    are_texts = all(isinstance(value, str) and value for value in entry.values())
    return bool(entry) and are_texts and entry.keys() <= known


class _TokenFile:
    """A token in a file that others exchange for a newer one."""

    def __init__(self, path: Path, interval: float) -> None:
        self._path, self._interval = path, interval
        self._token, self._due = read_token(path), time.monotonic() + interval
        self._has_failed = False

    async def bearer(self) -> str:
        """The token as it is now; when it cannot be read, what we have may still be valid."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + self._interval
            try:
                self._token, self._has_failed = read_token(self._path), False
            except (OSError, ValueError):
                if not self._has_failed:
                    log.warning("credentials not read again", exc_info=True)
                self._has_failed = True
        return self._token


def read_token(path: Path) -> str:
    """What a token file has; raises `OSError`, and `ValueError` when it is empty."""
    if not (token := read_bounded(path).decode().strip()):
        raise ValueError(f"{path} is empty")
    return token


def _pod_account(reread_interval: float) -> RestConfig:
    """The service account that the kubelet gave the Pod."""
    host = os.environ["KUBERNETES_SERVICE_HOST"]
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "")
    authority = POD_ACCOUNT / "ca.crt"
    try:
        if not port:
            raise ValueError("KUBERNETES_SERVICE_PORT is not set")
        token = _TokenFile(POD_ACCOUNT / "token", reread_interval)
        if not read_bounded(authority):
            raise ValueError(f"{authority} is empty")
    except (OSError, ValueError) as error:
        raise ConfigurationFault(
            "--kubeconfig",
            f"is not given, and the Pod's service account is not usable: {error}",
            "mount the service account token, or give a kubeconfig",
        ) from error
    name = f"[{host}]" if ":" in host else host
    return RestConfig(Server(f"https://{name}:{port}", str(authority)), token.bearer)
