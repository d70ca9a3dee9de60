"""Whether a Service that is no longer in the feed, and did not wait for us, is really gone."""

from ccm.errors import KubernetesError
from ccm.kube.client import Kube
from ccm.model.objects import mapping
from ccm.model.service import Service
from workers.service.patches import path_of

SHARE = 0.3  # of the Services with balancers; when more vanish at once, something else is wrong


def doubt(missing: int, known: int) -> str:
    """Why nothing is concluded from so many missing Services; empty when there is no doubt."""
    if missing <= 1 or missing <= SHARE * known:
        return ""
    return (
        f"{missing} of {known} Services vanished at once without waiting for their cleanup; "
        "their balancers are kept: delete them by hand if the Services are really gone"
    )


async def is_there(kube: Kube, service: Service) -> bool:
    """Whether the API server has this very Service; raises when it does not say."""
    try:
        found = await kube.get(path_of(service))
    except KubernetesError as error:
        if error.status == 404 and error.reason == "NotFound":
            return False
        raise
    return mapping(found.get("metadata")).get("uid") == service.uid
