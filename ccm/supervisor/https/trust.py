"""Which CAs sign for clients, and for proxies that name their client: files and the cluster."""

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from ccm.errors import ConfigurationFault, KubernetesError, Unreachable
from ccm.kube.client import Kube
from ccm.model.objects import Json, mapping, text
from ccm.settings import Settings

log = logging.getLogger(__name__)

CONFIG_MAP = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
LOOK_UP_EVERY = 60.0  # seconds between two looks at it
LOOK_AGAIN = 10.0  # seconds when it could not be read
REMEDY = "bind role extension-apiserver-authentication-reader, or --authentication-skip-lookup"
CLIENT_FLAG, PROXY_FLAG = "--client-ca-file", "--requestheader-client-ca-file"

CAs = tuple[x509.Certificate, ...]


@dataclass(frozen=True, slots=True)
class ProxyHeaders:
    """Headers in which a proxy names its client; `names` it may have itself, empty: any."""

    users: tuple[str, ...] = ()
    uids: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Trust:
    """Whose certificates count for what."""

    clients: CAs = ()
    proxies: CAs = ()
    headers: ProxyHeaders = ProxyHeaders()

    def pem(self) -> str:
        """All CAs together."""
        each = dict.fromkeys((*self.clients, *self.proxies))
        return "".join(ca.public_bytes(Encoding.PEM).decode() for ca in each)


class TrustSource:
    """Keeps up with the files and the cluster; what cannot be read stays as it was.

    Files come before the cluster's ConfigMap, each for its own purpose.
    """

    def __init__(self, settings: Settings, kube: Kube) -> None:
        self._settings, self._kube = settings, kube
        self._cluster = Trust()
        self._files: dict[str, CAs] = {}  # by flag
        self._troubles: dict[str, str] = {}

    @property
    def current(self) -> Trust:
        found = self._cluster
        if (clients := self._files.get(CLIENT_FLAG)) is not None:
            found = replace(found, clients=clients)
        if (proxies := self._files.get(PROXY_FLAG)) is not None:
            found = replace(found, proxies=proxies, headers=_headers_of(self._settings))
        return found

    async def load(self) -> None:
        """Read the files for the first time; raises `ConfigurationFault` with the flag."""
        for flag, path in self._paths().items():
            try:
                self._files[flag] = await asyncio.to_thread(_read, path)
            except (OSError, ValueError) as error:
                raise ConfigurationFault(
                    flag, f"{path} is not usable: {error}", "give certificates of CAs as PEM"
                ) from error

    async def refresh(self) -> None:
        """Take up what changed in the files."""
        for flag, path in self._paths().items():
            try:
                self._files[flag] = await asyncio.to_thread(_read, path)
                self._note(flag)
            except (OSError, ValueError) as error:
                self._note(flag, logging.ERROR, str(error))

    async def follow_cluster(self) -> None:
        """Ask the cluster once a minute, for ever, for what no file gives."""
        is_needed = len(self._paths()) < 2 and not self._settings.authentication_skip_lookup
        while is_needed:
            pause = await self._look_up()
            await asyncio.sleep(pause)

    def _paths(self) -> dict[str, str]:
        settings = self._settings
        files = {
            CLIENT_FLAG: settings.client_ca_file,
            PROXY_FLAG: settings.requestheader_client_ca_file,
        }
        return {flag: path for flag, path in files.items() if path}

    async def _look_up(self) -> float:
        """Seconds until the next look."""
        try:
            self._cluster = _trust_in(await self._kube.request("GET", CONFIG_MAP, timeout=10.0))
        except (KubernetesError, Unreachable, ValueError) as error:
            if isinstance(error, KubernetesError) and error.status == 404:
                self._cluster = Trust()  # this API server takes no client certificates
                return LOOK_UP_EVERY
            is_tolerated = self._settings.authentication_tolerate_lookup_failure
            self._note(REMEDY, logging.INFO if is_tolerated else logging.ERROR, str(error))
            return LOOK_AGAIN
        self._note(REMEDY)
        return LOOK_UP_EVERY

    def _note(self, remedy: str, level: int = logging.INFO, trouble: str = "") -> None:
        """Say once what is wrong, and where to mend it."""
        if trouble and self._troubles.get(remedy) != trouble:
            log.log(level, "client CAs not read", extra={"why": trouble, "remedy": remedy})
        self._troubles[remedy] = trouble


def _read(path: str) -> CAs:
    return tuple(x509.load_pem_x509_certificates(Path(path).read_bytes()))


def _headers_of(settings: Settings) -> ProxyHeaders:
    return ProxyHeaders(
        settings.requestheader_username_headers,
        settings.requestheader_uid_headers,
        settings.requestheader_group_headers,
        settings.requestheader_extra_headers_prefix,
        settings.requestheader_allowed_names,
    )


def _trust_in(config_map: Json) -> Trust:
    """What the API server says of its own clients; raises ValueError when it is not understood."""
    data = mapping(config_map.get("data"))
    headers = ProxyHeaders(
        _list(data, "requestheader-username-headers"),
        _list(data, "requestheader-uid-headers"),
        _list(data, "requestheader-group-headers"),
        _list(data, "requestheader-extra-headers-prefix"),
        _list(data, "requestheader-allowed-names"),
    )
    clients = _cas(data, "client-ca-file")
    return Trust(clients, _cas(data, "requestheader-client-ca-file"), headers)


def _cas(data: Mapping[str, Any], key: str) -> CAs:
    pem = text(data.get(key))
    return tuple(x509.load_pem_x509_certificates(pem.encode())) if pem else ()


def _list(data: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = json.loads(text(data.get(key)) or "[]")
    if not isinstance(value, list):
        raise ValueError(f"{key} is not a list")
    return tuple(str(item) for item in value)
