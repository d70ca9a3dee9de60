"""moto as a process of its own on loopback, and the client with which tests look behind it."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, Self
from urllib.request import Request, urlopen

import boto3
from botocore import session
from botocore.client import ClientCreator
from botocore.config import Config

from tests.support.deadlines import timeout
from tests.support.running import wait_for

REGION = "us-east-1"
ACCOUNT = "123456789012"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
FIRST_READS = (
    ("ec2", "addresses"),
    ("ec2", "instances"),
    ("ec2", "network_interfaces"),
    ("ec2", "security_groups"),
    ("ec2", "volumes"),
    ("elb", "load_balancers"),
    ("elbv2", "load_balancers"),
)
_PLAIN = {"Content-Type": "text/plain"}


def read_models_once() -> None:
    """Let all sessions of this process share what botocore makes of its service models."""
    if not hasattr(session.create_loader, "cache_info"):
        session.create_loader = cache(session.create_loader)
        create, methods = ClientCreator._create_methods, dict[str, Any]()

        def create_once(creator: Any, model: Any) -> Any:
            if model.service_name not in methods:
                methods[model.service_name] = create(creator, model)
            return {**methods[model.service_name]}

        ClientCreator._create_methods = create_once


class Emulator:
    """One moto server; `reset` makes it what it was when `keep` was called."""

    def __init__(self, directory: Path, rules_per_group: int = 60) -> None:
        read_models_once()
        url_file = directory / "moto.url"
        self._log = directory / "moto.log"
        self._clients: dict[str, Any] = {}
        serve = ["-m", "tests.providers.aws.serve_moto", str(url_file), str(os.getpid())]
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, *serve, str(rules_per_group)],
                stdout=output,
                stderr=output,
                env={**os.environ, "MOTO_EC2_LOAD_DEFAULT_AMIS": "false"},
            )
        wait_for("moto listens", lambda: self._is_up(url_file))
        self.url = url_file.read_text()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients.values():
            client.close()
        self._process.kill()
        self._process.wait()

    def keep(self) -> None:
        """Have moto load before what the first read of each kind loads: each `reset` forgets it."""
        for service, what in FIRST_READS:
            getattr(self.client(service), f"describe_{what}")()
        self._post("keep", b"")

    def reset(self) -> None:
        self._post("reset", b"")

    def require_permission(self, is_required: bool) -> None:
        """Judge calls by the policies of their user from now on, or let every call pass."""
        self._post("reset-auth", b"0" if is_required else b"inf")

    def client(self, service: str) -> Any:
        """The tests' own way to the emulator, which no fault and no count touches."""
        if service not in self._clients:
            self._clients[service] = boto3.client(
                service,
                region_name=REGION,
                endpoint_url=self.url,
                aws_access_key_id="testing",
                aws_secret_access_key="testing",
                config=Config(
                    read_timeout=None,  # the test itself has one, which grows with the load
                    retries={"total_max_attempts": 1, "mode": "standard"},
                ),
            )
        return self._clients[service]

    def _post(self, what: str, body: bytes) -> None:
        request = Request(f"{self.url}/moto-api/{what}", data=body, method="POST", headers=_PLAIN)
        with urlopen(request, timeout=timeout()) as response:
            assert response.status == 200

    def _is_up(self, url_file: Path) -> bool:
        if self._process.poll() is not None:
            raise AssertionError(self._log.read_text(errors="replace")[-2000:])
        return url_file.exists()
