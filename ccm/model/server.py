"""Where the API server is, in plain values: a worker is handed them and reads no kubeconfig."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Server:
    """An address, and the files with which both ends prove who they are.

    `tls_name` is the name in its certificate, when that is not the host of `url`. Without
    `is_strict`, certificates may bend RFC 5280, as those of old clusters do.
    """

    url: str
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    tls_name: str = ""
    is_verified: bool = True
    is_strict: bool = True

    def without_certificate(self) -> "Server":
        """For whoever shows a token: a client certificate as well would win over it."""
        return replace(self, cert_file="", key_file="")
