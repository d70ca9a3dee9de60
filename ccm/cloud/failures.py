"""What a failed request means for its caller: by its status, or by how its connection broke."""

import socket
import ssl

from ccm.errors import (
    CloudError,
    Conflict,
    Denied,
    NotFound,
    Refused,
    Throttled,
    Unauthenticated,
)
from ccm.http import HttpResponse

OF_THE_WAY = (407, 408)  # what a proxy says, and too slow a connection: no refusal of the cloud's


class Unsent(CloudError):
    """No connection could be made: the request did not leave."""


def by_status(message: str, response: HttpResponse) -> CloudError:
    """What a status means for the caller, in clouds that keep to HTTP."""
    match response.status:
        case 401:
            return Unauthenticated(message)
        case 403:
            return Denied(message)
        case 404:
            return NotFound(message)
        case 409:
            return Conflict(message)
        case 429:
            return Throttled(message, response.retry_after)
        case status if 400 <= status < 500 and status not in OF_THE_WAY:
            return Refused(message)
    return CloudError(message)


def what_broke(error: Exception, ca_keys: str) -> str:
    """What to say of a request without an answer; `ca_keys` of the configuration name the
    trusted certificates.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        why = f"the certificate is not trusted: {error.verify_message.rstrip('.')}"
        return f"{why}; give its authority's, or the server's own, as {ca_keys}"
    if isinstance(error, ssl.SSLError):
        hint = "is it http instead of https?" if "WRONG_VERSION" in str(error) else ca_keys
        return f"TLS cannot be set up: {error.reason or error}; check the address ({hint})"
    if isinstance(error, socket.gaierror):
        return f"the host name cannot be resolved: {error.strerror}"
    if isinstance(error, ConnectionRefusedError):
        return "the connection is refused: nothing listens there, or a firewall rejects it"
    return f"{type(error).__name__}: {error}"
