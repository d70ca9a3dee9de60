"""What the instance we run on is, from its metadata service (IMDSv2); outside of AWS nothing."""

import os
from dataclasses import dataclass
from http.client import HTTPException
from urllib.error import URLError
from urllib.request import ProxyHandler, Request, build_opener

from ccm.providers.aws.tags import CLUSTER_TAG_PREFIX, LEGACY_CLUSTER_TAG

DEFAULT_ENDPOINT = "http://169.254.169.254"
REQUEST_TIMEOUT = 2.0  # seconds for each of a few small requests to the machine's own host
TOKEN_TTL = 300  # seconds
NO_ANSWER = (URLError, HTTPException, OSError)


@dataclass(frozen=True, slots=True)
class OwnInstance:
    """The instance that this process runs on; empty text where the service does not say."""

    instance_id: str = ""
    region: str = ""
    vpc: str = ""
    cluster_id: str = ""  # from the tags, where the instance lets them be read here


class InstanceMetadata:
    """The instance metadata service, version 2; `AWS_EC2_METADATA_DISABLED` is respected."""

    def __init__(self) -> None:
        self._endpoint = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or DEFAULT_ENDPOINT
        self._is_disabled = os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true"
        self._opener = build_opener(ProxyHandler({}))  # never by a proxy

    def read(self) -> OwnInstance:
        """This instance; empty outside of AWS and where the service is off."""
        if self._is_disabled:
            return OwnInstance()
        ttl = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_TTL)}
        try:
            token = self._request("api/token", "PUT", ttl)
        except NO_ANSWER:
            return OwnInstance()
        mac = self._get("mac", token)
        return OwnInstance(
            instance_id=self._get("instance-id", token),
            region=self._get("placement/region", token),
            vpc=self._get(f"network/interfaces/macs/{mac}/vpc-id", token) if mac else "",
            cluster_id=self._cluster_id(token),
        )

    def _cluster_id(self, token: str) -> str:
        keys = self._get("tags/instance", token).split()
        found = [key for key in keys if key.startswith(CLUSTER_TAG_PREFIX)]
        if len(found) == 1:
            return found[0].removeprefix(CLUSTER_TAG_PREFIX)
        is_legacy = LEGACY_CLUSTER_TAG in keys and not found
        return self._get(f"tags/instance/{LEGACY_CLUSTER_TAG}", token) if is_legacy else ""

    def _get(self, path: str, token: str) -> str:
        try:
            return self._request(f"meta-data/{path}", "GET", {"X-aws-ec2-metadata-token": token})
        except NO_ANSWER:
            return ""

    def _request(self, path: str, method: str, headers: dict[str, str]) -> str:
        request = Request(f"{self._endpoint}/latest/{path}", method=method, headers=headers)
        with self._opener.open(request, timeout=REQUEST_TIMEOUT) as response:
            return str(response.read().decode()).strip()
