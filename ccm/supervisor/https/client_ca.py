"""CAs of client certificates, and of front proxies: from files, else from the cluster."""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from ccm.directories import read_bounded
from ccm.errors import ConfigurationFault, KubernetesError, Unreachable
from ccm.kube.client import Kube, about
from ccm.model.objects import Json, mapping, text
from ccm.settings import Settings

log = logging.getLogger(__name__)

CONFIG_MAP = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
CONFIG_MAP_RETRY_DELAY = 10.0  # seconds after a failed read
CONFIG_MAP_TIMEOUT = 10.0  # seconds for one read
REMEDY = "bind role extension-apiserver-authentication-reader, or --authentication-skip-lookup"
FLAGS = CLIENT_FLAG, PROXY_FLAG = "--client-ca-file", "--requestheader-client-ca-file"

CertificateAuthorities = tuple[x509.Certificate, ...]


@dataclass(frozen=True, slots=True)
class CAFile:
    """The content of a file, and the CAs in it."""

    content: bytes
    cas: CertificateAuthorities


@dataclass(frozen=True, slots=True)
class RequestHeaderNames:
    """In which headers a front proxy names its client.

    `allowed_proxies` are common names of proxies; empty allows any.
    """

    username: tuple[str, ...] = ()
    uid: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ()
    allowed_proxies: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClientCAs:
    """The CAs of clients, and those of front proxies."""

    clients: CertificateAuthorities = ()
    proxies: CertificateAuthorities = ()
    header_names: RequestHeaderNames = RequestHeaderNames()

    def pem(self) -> str:
        """All CAs together."""
        each = dict.fromkeys((*self.clients, *self.proxies))
        return "".join(ca.public_bytes(Encoding.PEM).decode() for ca in each)


@contextmanager
def value_errors() -> Iterator[None]:
    """Raise ValueError for whatever is wrong in a certificate: the library has several errors."""
    try:
        yield
    except ValueError:
        raise
    except Exception as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


class ClientCAProvider:
    """Keeps up with the files and the cluster; what cannot be read stays as it was.

    Files come before the cluster's ConfigMap, each for its own purpose.
    """

    def __init__(self, settings: Settings, kube: Kube, interval: float) -> None:
        """`interval`: seconds between two reads of the ConfigMap."""
        self._settings, self._kube, self._interval = settings, kube, interval
        self._cluster = ClientCAs()
        self._files: dict[str, CAFile] = {}  # by flag
        self._errors: dict[str, str] = {}  # by remedy

    @property
    def current(self) -> ClientCAs:
        current = self._cluster
        if clients := self._files.get(CLIENT_FLAG):
            current = replace(current, clients=clients.cas)
        if proxies := self._files.get(PROXY_FLAG):
            names = _names_in_settings(self._settings)
            current = replace(current, proxies=proxies.cas, header_names=names)
        return current

    async def load(self) -> None:
        """Read the files for the first time; raises `ConfigurationFault` with the flag."""
        self._files = await read_files(self._settings)

    async def refresh(self) -> None:
        """Read the files again."""
        for flag, path in _paths(self._settings).items():
            try:
                self._files[flag] = await _read(path, self._files.get(flag))
                self._report(flag)
            except (OSError, ValueError) as error:
                self._report(flag, logging.ERROR, error)

    async def poll_cluster(self) -> None:
        """Read the ConfigMap every minute, for ever, where it is needed."""
        is_needed = (
            len(_paths(self._settings)) < 2 and not self._settings.authentication_skip_lookup
        )
        while is_needed:
            delay = await self._read_config_map()
            await asyncio.sleep(delay)

    async def _read_config_map(self) -> float:
        """Seconds until the next read."""
        try:
            answer = await self._kube.request("GET", CONFIG_MAP, timeout=CONFIG_MAP_TIMEOUT)
            self._cluster = _parse(about(CONFIG_MAP, answer))
        except (KubernetesError, Unreachable, ValueError) as error:
            if isinstance(error, KubernetesError) and error.is_gone:
                self._cluster = ClientCAs()  # this API server takes no client certificates
                return self._interval
            is_tolerated = self._settings.authentication_tolerate_lookup_failure
            self._report(REMEDY, logging.INFO if is_tolerated else logging.ERROR, error)
            return CONFIG_MAP_RETRY_DELAY
        self._report(REMEDY)
        return self._interval

    def _report(
        self, remedy: str, level: int = logging.INFO, error: Exception | None = None
    ) -> None:
        """Log an error once."""
        why = str(error) if error else ""
        if why and self._errors.get(remedy) != why:
            log.log(level, "client CAs not read", extra={"why": why, "remedy": remedy})
        self._errors[remedy] = why


async def read_files(settings: Settings) -> dict[str, CAFile]:
    """The CAs in files by flag; raises `ConfigurationFault` for the first that cannot be used."""
    found = {}
    for flag, path in _paths(settings).items():
        try:
            found[flag] = await _read(path)
        except (OSError, ValueError) as error:
            problem = f"{path} is not usable: {error}"
            raise ConfigurationFault(flag, problem, "give certificates of CAs as PEM") from error
    return found


def _paths(settings: Settings) -> dict[str, str]:
    paths = (settings.client_ca_file, settings.requestheader_client_ca_file)
    return {flag: path for flag, path in zip(FLAGS, paths, strict=True) if path}


async def _read(path: str, known: CAFile | None = None) -> CAFile:
    """What is in the file; the same as is known is not parsed again."""
    content = await asyncio.to_thread(read_bounded, Path(path))
    return known if known and known.content == content else CAFile(content, _certificates(content))


def _certificates(pem: bytes) -> CertificateAuthorities:
    with value_errors():
        return tuple(x509.load_pem_x509_certificates(pem))


def _names_in_settings(settings: Settings) -> RequestHeaderNames:
    return RequestHeaderNames(
        settings.requestheader_username_headers,
        settings.requestheader_uid_headers,
        settings.requestheader_group_headers,
        settings.requestheader_extra_headers_prefix,
        settings.requestheader_allowed_names,
    )


def _parse(config_map: Json) -> ClientCAs:
    """The API server's own configuration for its clients; raises ValueError for an invalid one."""
    data = mapping(config_map.get("data"))
    names = RequestHeaderNames(
        _list(data, "requestheader-username-headers"),
        _list(data, "requestheader-uid-headers"),
        _list(data, "requestheader-group-headers"),
        _list(data, "requestheader-extra-headers-prefix"),
        _list(data, "requestheader-allowed-names"),
    )
    clients = _cas(data, "client-ca-file")
    return ClientCAs(clients, _cas(data, "requestheader-client-ca-file"), names)


def _cas(data: Mapping[str, Any], key: str) -> CertificateAuthorities:
    pem = text(data.get(key))
    return _certificates(pem.encode()) if pem else ()


def _list(data: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = orjson.loads(text(data.get(key)) or "[]")
    if not isinstance(value, list):
        raise ValueError(f"{key} is not a list")
    return tuple(str(item) for item in value)
