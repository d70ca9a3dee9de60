"""How long the HTTPS server waits for what."""

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class HttpsTimings:
    """Seconds, where no other unit is in the type."""

    handshake_timeout: float = 5.0
    file_poll_interval: float = 2.0
    """Between two reads of the certificate files."""
    config_map_interval: float = 60.0
    """Between two reads of the cluster's client CAs."""
    renew_before: timedelta = timedelta(days=30)
    """A self-signed certificate is replaced so long before it expires."""
    review_timeout: float = 10.0
    """For one review, retries included."""
    review_backoff: tuple[float, ...] = (0.5, 0.75, 1.125, 1.6875)
    """Between the tries of one review, as upstream."""
