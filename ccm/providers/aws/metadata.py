"""What the machine we run on is in AWS, from its metadata service; on other machines nothing."""

import os
from dataclasses import dataclass
from http.client import HTTPException
from urllib.error import URLError
from urllib.request import ProxyHandler, Request, build_opener

ENDPOINT = "http://169.254.169.254"
TIMEOUT = 2.0  # seconds for each of a few small requests to the machine's own host
TOKEN_SECONDS = 300
MARK = "kubernetes.io/cluster/"
LEGACY_MARK = "KubernetesCluster"


@dataclass(frozen=True, slots=True)
class Machine:
    """Where this process runs; empty text where the service does not say."""

    instance_id: str = ""
    region: str = ""
    vpc: str = ""
    subnet: str = ""
    cluster_id: str = ""  # from the tags, where the instance lets them be read here


class Metadata:
    """The instance metadata service, version 2; `AWS_EC2_METADATA_DISABLED` is respected."""

    def __init__(self) -> None:
        self._endpoint = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or ENDPOINT
        self._is_off = os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true"
        self._open = build_opener(ProxyHandler({})).open  # never by a proxy

    def machine(self) -> Machine:
        """This machine; one that is not in AWS, or whose service is off, is empty."""
        if self._is_off:
            return Machine()
        try:
            token = self._token()
        except (URLError, HTTPException, OSError):
            return Machine()
        mac = self._get("mac", token)
        interface = f"network/interfaces/macs/{mac}"
        return Machine(
            instance_id=self._get("instance-id", token),
            region=self._get("placement/region", token),
            vpc=self._get(f"{interface}/vpc-id", token) if mac else "",
            subnet=self._get(f"{interface}/subnet-id", token) if mac else "",
            cluster_id=self._cluster_id(token),
        )

    def _cluster_id(self, token: str) -> str:
        keys = self._get("tags/instance", token).split()
        marks = [key.removeprefix(MARK) for key in keys if key.startswith(MARK)]
        if len(marks) == 1:
            return marks[0]
        is_legacy = LEGACY_MARK in keys and not marks
        return self._get(f"tags/instance/{LEGACY_MARK}", token) if is_legacy else ""

    def _token(self) -> str:
        headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_SECONDS)}
        request = Request(f"{self._endpoint}/latest/api/token", method="PUT", headers=headers)
        with self._open(request, timeout=TIMEOUT) as response:
            return str(response.read().decode())

    def _get(self, path: str, token: str) -> str:
        headers = {"X-aws-ec2-metadata-token": token}
        request = Request(f"{self._endpoint}/latest/meta-data/{path}", headers=headers)
        try:
            with self._open(request, timeout=TIMEOUT) as response:
                return str(response.read().decode()).strip()
        except (URLError, HTTPException, OSError):
            return ""
