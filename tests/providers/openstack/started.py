"""The provider, started for a test."""

from ccm.providers.openstack.provider import OpenStackCloud
from tests.providers.started import StartedProvider


class Started(StartedProvider, OpenStackCloud):
    """The provider with its gate."""

    def __init__(
        self,
        config: str,
        path: str = "",
        cluster: str = "kit",
        uid: str = "",
        caller: str = "test",
        restricts_annotations: bool = False,
    ) -> None:
        given = {"cluster_name": cluster, "cluster_uid": uid, "caller": caller}
        super().__init__(config, path, **given, restricts_annotations=restricts_annotations)
