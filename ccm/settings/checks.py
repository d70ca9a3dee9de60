"""What is wrong with settings that are well-formed one by one."""

from collections.abc import Iterator

from ccm.durations import format_duration
from ccm.errors import ConfigurationFault
from ccm.settings.values import Settings


def check(settings: Settings) -> Iterator[ConfigurationFault]:
    """Every fault, each once."""
    if not settings.cloud_provider:
        yield ConfigurationFault(
            "--cloud-provider", "cannot be empty", "name one that 'ccm-supervisor providers' lists"
        )
    if not 0 <= settings.cloud_reserve < 1:
        yield ConfigurationFault(
            "--cloud-reserve", "is not a share", "use a number from 0, below 1, such as 0.2"
        )
    if not 0 < settings.node_vanish_share <= 1:
        yield ConfigurationFault(
            "--node-vanish-share", "is not a share of nodes", "use a number above 0, at most 1"
        )
    if settings.leader_elect:
        yield from _check_lease(settings)
    yield from _check_serving(settings)


def _check_lease(settings: Settings) -> Iterator[ConfigurationFault]:
    retry = settings.leader_elect_retry_period
    deadline = settings.leader_elect_renew_deadline
    if deadline <= 1.2 * retry:
        yield ConfigurationFault(
            "--leader-elect-renew-deadline",
            f"{format_duration(deadline)} is not longer than 1.2 × the retry period",
            f"use more than {format_duration(1.2 * retry)}",
        )
    if settings.leader_elect_lease_duration <= deadline:
        yield ConfigurationFault(
            "--leader-elect-lease-duration",
            "is not longer than --leader-elect-renew-deadline",
            f"use more than {format_duration(deadline)}",
        )


def _check_serving(settings: Settings) -> Iterator[ConfigurationFault]:
    if bool(settings.tls_cert_file) != bool(settings.tls_private_key_file):
        missing = "private-key-file" if settings.tls_cert_file else "cert-file"
        yield ConfigurationFault(
            f"--tls-{missing}", "is missing", "a certificate needs its key: give both flags or none"
        )
    if settings.secure_port and settings.webhook_secure_port == settings.secure_port:
        yield ConfigurationFault(
            "--webhook-secure-port", "is --secure-port as well", "use another port, or 0"
        )
