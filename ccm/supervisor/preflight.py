"""Before the first list: does the API server answer, and does it let us in?"""

import asyncio
import logging

from ccm.errors import ConfigurationFault, KubernetesError, Unreachable
from ccm.kube.client import Kube
from ccm.settings import Settings

log = logging.getLogger(__name__)

PATIENCE = 10.0  # seconds, as upstream waits for the API server


async def check_api_server(kube: Kube, url: str, settings: Settings) -> None:
    """Return when the API server answers; raise `ConfigurationFault` when it turns us away.

    Raises `Unreachable` when it does not answer at all for ten seconds.
    """
    field = said_by(settings)
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while True:
        try:
            await kube.request("GET", "/api/v1/nodes", params={"limit": "1"}, timeout=5.0)
            return
        except KubernetesError as error:
            if fault := turned_away(field, url, error):
                raise fault from error
            why = str(error)
        except Unreachable as error:
            why = str(error)
        if asyncio.get_running_loop().time() >= deadline:
            raise Unreachable(str(no_answer(field, url, why)))
        await asyncio.sleep(0.5)


def said_by(settings: Settings) -> str:
    """The flag that says where the API server is."""
    return "--kubeconfig" if settings.kubeconfig or not settings.master else "--master"


def no_answer(field: str, url: str, why: str) -> ConfigurationFault:
    """What to say when it does not answer; the address is not always to blame."""
    return ConfigurationFault(
        field,
        f"the API server at {url} does not answer ({why})",
        "check the address, and that the API server is running",
    )


def turned_away(field: str, url: str, error: KubernetesError) -> ConfigurationFault | None:
    """What to say when it does not let us in; None when it answered something else."""
    if error.status == 401:
        return ConfigurationFault(
            field,
            f"the API server at {url} does not accept these credentials (401)",
            "renew the token or client certificate",
        )
    if error.status == 403:
        return ConfigurationFault(
            field,
            f"the API server at {url} forbids listing nodes (403: {error.message})",
            "grant this identity the rights in docs/permissions.md",
        )
    return None
