"""What the proxy of tests knows of names; nothing else is imported, so that it starts fast."""

from proxy.http.proxy import HttpProxyBasePlugin


class ToLoopback(HttpProxyBasePlugin):  # type: ignore[misc]
    """Names that no DNS knows are this machine, as they are behind a proxy of a real network."""

    def resolve_dns(self, host: str, port: int) -> tuple[str, None]:
        return "127.0.0.1", None
