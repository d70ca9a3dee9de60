"""The TLS side of the server: each handshake uses the newest certificates and the newest CAs.

A context cannot forget a CA, and half a change of its certificate would break it. So a change makes
new contexts, and the one context that listens only picks among them, handshake by handshake.
"""

import asyncio
import datetime
import logging
import ssl
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ccm.errors import ConfigurationFault
from ccm.settings import Settings
from ccm.supervisor.https.certificates import Pair, make_in, paths_in, read_pair, self_signed
from ccm.supervisor.https.ciphers import VERSIONS, openssl_names

log = logging.getLogger(__name__)

CURVES = {23: "prime256v1", 24: "secp384r1", 25: "secp521r1"}
"""Numbers that IANA gave them → names of those that Python can set, which is one alone."""

RENEW_BEFORE = datetime.timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Source:
    """The files of a pair, and the flag that names them."""

    flag: str
    cert_file: Path
    key_file: Path


@dataclass(frozen=True, slots=True)
class Shown:
    """What clients are shown and who may show us a certificate: PEM of CAs, empty for nobody."""

    pairs: tuple[Pair, ...]
    trusted: str


class Tls:
    """`context` is for the listening socket; `refresh` takes up what changed in the files."""

    def __init__(self, settings: Settings, trusted: Callable[[], str]) -> None:
        self._settings, self._trusted = settings, trusted
        self._own: Pair | None = None
        self._sources: list[Source] = []
        self._shown: Shown | None = None
        self._default = self.context = self._context("")
        self._by_name: dict[str, ssl.SSLContext] = {}
        self._trouble = ""
        self.context.sni_callback = self._choose
        # A session that is resumed would bring along what an earlier handshake believed.
        self.context.num_tickets = 0
        self.context.options |= ssl.OP_NO_TICKET

    async def load(self) -> None:
        """Read everything for the first time; raises `ConfigurationFault` with the flag."""
        self._sources = await asyncio.to_thread(self._find_sources)
        for source in self._sources:
            try:
                self._context("", await asyncio.to_thread(_read, source))
            except (OSError, ValueError) as error:
                raise ConfigurationFault(
                    source.flag,
                    f"{source.cert_file} and {source.key_file} are not usable: {error}",
                    "give a certificate and its key, both PEM, that this user may read",
                ) from error
        await self.refresh()
        if self._shown is None:
            raise ConfigurationFault("--client-ca-file", self._trouble, "OpenSSL must take it")

    async def refresh(self) -> None:
        """Show what the files hold now; what cannot be used is left alone until it can."""
        try:
            read = await asyncio.to_thread(lambda: [_read(source) for source in self._sources])
            shown = Shown((*self._generated(), *read), self._trusted())
            if shown != self._shown:
                self._show(shown)
            self._note("")
        except (OSError, ValueError) as error:
            self._note(str(error))

    def ends_at(self) -> float:
        """When the default certificate ends, as Unix time."""
        return self._shown.pairs[0].leaf().not_valid_after_utc.timestamp() if self._shown else 0.0

    def _find_sources(self) -> list[Source]:
        settings, sources = self._settings, []
        if settings.tls_cert_file:
            cert_file, key_file = settings.tls_cert_file, settings.tls_private_key_file
            sources.append(Source("--tls-cert-file", Path(cert_file), Path(key_file)))
        elif settings.cert_dir:
            directory = Path(settings.cert_dir)
            try:
                make_in(directory)
            except (OSError, ValueError) as error:
                raise ConfigurationFault(
                    "--cert-dir", f"no pair in {directory}: {error}", "let this user write there"
                ) from error
            sources.append(Source("--cert-dir", *paths_in(directory)))
        for pair in settings.tls_sni_cert_key:
            files = Path(pair.cert_file), Path(pair.key_file)
            sources.append(Source("--tls-sni-cert-key", *files))
        return sources

    def _generated(self) -> tuple[Pair, ...]:
        """The pair that we made ourselves, when no file gives the default one."""
        if self._settings.tls_cert_file or self._settings.cert_dir:
            return ()
        soon = datetime.datetime.now(datetime.UTC) + RENEW_BEFORE
        if self._own is None or self._own.leaf().not_valid_after_utc < soon:
            self._own = self_signed()
        return (self._own,)

    def _show(self, shown: Shown) -> None:
        """Make the contexts, and only when all of them are good use them."""
        default, *others = [self._context(shown.trusted, pair) for pair in shown.pairs]
        named: dict[str, ssl.SSLContext] = {}
        for given, pair, context in zip(
            self._settings.tls_sni_cert_key, shown.pairs[1:], others, strict=True
        ):
            for name in given.names or pair.names():
                named.setdefault(name.lower(), context)  # of two for a name, the first counts
        self._default, self._by_name = default, named
        # This one thing a handshake does not take from the context that is picked.
        self.context.verify_mode = ssl.CERT_OPTIONAL if shown.trusted else ssl.CERT_NONE
        is_change, self._shown = self._shown is not None, shown
        if is_change:
            until = shown.pairs[0].leaf().not_valid_after_utc
            log.info("certificates changed", extra={"until": until.isoformat()})

    def _context(self, trusted: str, pair: Pair | None = None) -> ssl.SSLContext:
        settings = self._settings
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of old versions: asked for
            context.minimum_version = VERSIONS[settings.tls_min_version]
        if suites := openssl_names(settings.tls_cipher_suites):
            context.set_ciphers(suites)
        if curve := _only_curve(settings.tls_curve_preferences):
            context.set_ecdh_curve(curve)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # a CA may be an intermediate
        if trusted:
            context.load_verify_locations(cadata=trusted)
        if pair:
            pair.put_into(context)
        return context

    def _choose(
        self, connection: ssl.SSLObject, server_name: str | None, _: ssl.SSLContext
    ) -> None:
        name = (server_name or "").lower()
        wildcard = f"*.{name.partition('.')[2]}"
        found = self._by_name.get(name) or self._by_name.get(wildcard)
        connection.context = found or self._default

    def _note(self, trouble: str) -> None:
        if trouble and trouble != self._trouble:
            log.error("certificates not taken up; the old ones stay", extra={"why": trouble})
        self._trouble = trouble


def _read(source: Source) -> Pair:
    return read_pair(source.cert_file, source.key_file)


def _only_curve(preferences: tuple[int, ...]) -> str:
    """All that Python can do for `--tls-curve-preferences`: set a single one."""
    return CURVES.get(preferences[0], "") if len(preferences) == 1 else ""
