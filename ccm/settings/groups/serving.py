"""Flags about what is served over HTTPS, and to whom."""

from dataclasses import dataclass

from ccm.settings.declaration import (
    ADDRESS,
    AMOUNT,
    BOOLEAN,
    CERT_KEYS,
    CURVES,
    DIRECTORY,
    FILE,
    NAMES,
    PAUSE,
    PORT,
    WEBHOOKS,
    choice,
    ignored,
    upstream,
)
from ccm.settings.parsers import CertKey

TLS_VERSION = choice(
    "", "VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13", metavar="VERSION"
)
HTTP2 = "HTTP/1.1 is served only."
NO_WEBHOOKS = "There are no webhooks."


@dataclass(frozen=True)
class ServingFlags:
    bind_address: str = upstream("0.0.0.0", ADDRESS, "Address to listen on.")
    secure_port: int = upstream(10258, PORT, "Port of the HTTPS server; 0 = serve nothing.")
    cert_dir: str = upstream(
        "", DIRECTORY, "Where a certificate is made, or found; if not given, it stays in memory."
    )
    tls_cert_file: str = upstream("", FILE, "Certificate, with its chain; read again on change.")
    tls_private_key_file: str = upstream("", FILE, "Key of --tls-cert-file.")
    tls_sni_cert_key: tuple[CertKey, ...] = upstream(
        (), CERT_KEYS, "Certificate for clients that ask for these names; repeatable."
    )
    tls_cipher_suites: tuple[str, ...] = upstream((), NAMES, "Cipher suites up to TLS 1.2.")
    tls_curve_preferences: tuple[int, ...] = upstream((), CURVES, "Key exchanges, by number.")
    tls_min_version: str = upstream("", TLS_VERSION, "Oldest TLS version; if not given, 1.2.")
    disable_http2_serving: bool = ignored(False, BOOLEAN, HTTP2)
    http2_max_streams_per_connection: int = ignored(0, AMOUNT, HTTP2)
    permit_port_sharing: bool = upstream(False, BOOLEAN, "Listen with SO_REUSEPORT.")
    permit_address_sharing: bool = ignored(False, BOOLEAN, "SO_REUSEADDR is always set.")
    profiling: bool = upstream(True, BOOLEAN, "Serve /debug to those who may read it.")
    contention_profiling: bool = ignored(False, BOOLEAN, "There are no locks to contend for.")


@dataclass(frozen=True)
class AuthenticationFlags:
    authentication_kubeconfig: str = upstream(
        "", FILE, "Kubeconfig for token reviews; if not given, the Pod's own account."
    )
    authentication_skip_lookup: bool = upstream(
        False, BOOLEAN, "Do not look up client CAs in the cluster."
    )
    authentication_tolerate_lookup_failure: bool = upstream(
        False, BOOLEAN, "Serve although client CAs cannot be looked up."
    )
    authentication_token_webhook_cache_ttl: float = upstream(
        10.0, PAUSE, "How long the answer about a token counts."
    )
    client_ca_file: str = upstream("", FILE, "CA of client certificates.")
    requestheader_client_ca_file: str = upstream(
        "", FILE, "CA of proxies whose request headers name the user."
    )
    requestheader_username_headers: tuple[str, ...] = upstream(
        ("x-remote-user",), NAMES, "Headers with the user's name."
    )
    requestheader_group_headers: tuple[str, ...] = upstream(
        ("x-remote-group",), NAMES, "Headers with the user's groups."
    )
    requestheader_extra_headers_prefix: tuple[str, ...] = upstream(
        ("x-remote-extra-",), NAMES, "Prefixes of headers with more about the user."
    )
    requestheader_uid_headers: tuple[str, ...] = upstream((), NAMES, "Headers with the user's UID.")
    requestheader_allowed_names: tuple[str, ...] = upstream(
        (), NAMES, "Common names that such a proxy may have; if not given, any."
    )


@dataclass(frozen=True)
class AuthorizationFlags:
    authorization_kubeconfig: str = upstream(
        "", FILE, "Kubeconfig for access reviews; if not given, the Pod's own account."
    )
    authorization_always_allow_paths: tuple[str, ...] = upstream(
        ("/healthz", "/readyz", "/livez"), NAMES, "Paths that anyone may read; PREFIX* for many."
    )
    authorization_webhook_cache_authorized_ttl: float = upstream(
        10.0, PAUSE, "How long a yes counts."
    )
    authorization_webhook_cache_unauthorized_ttl: float = upstream(
        10.0, PAUSE, "How long a no counts."
    )


@dataclass(frozen=True)
class WebhookFlags:
    webhooks: tuple[str, ...] = ignored((), WEBHOOKS, NO_WEBHOOKS)
    webhook_bind_address: str = ignored("0.0.0.0", ADDRESS, NO_WEBHOOKS)
    webhook_secure_port: int = ignored(10260, PORT, NO_WEBHOOKS)
    webhook_cert_dir: str = ignored("", DIRECTORY, NO_WEBHOOKS)
    webhook_tls_cert_file: str = ignored("", FILE, NO_WEBHOOKS)
    webhook_tls_private_key_file: str = ignored("", FILE, NO_WEBHOOKS)
    webhook_tls_sni_cert_key: tuple[CertKey, ...] = ignored((), CERT_KEYS, NO_WEBHOOKS)
    webhook_tls_cipher_suites: tuple[str, ...] = ignored((), NAMES, NO_WEBHOOKS)
    webhook_tls_curve_preferences: tuple[int, ...] = ignored((), CURVES, NO_WEBHOOKS)
    webhook_tls_min_version: str = ignored("", TLS_VERSION, NO_WEBHOOKS)
    webhook_disable_http2_serving: bool = ignored(False, BOOLEAN, NO_WEBHOOKS)
