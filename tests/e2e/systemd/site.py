"""The service in a booted machine, beside a real API server and a cloud, and how it is doing."""

import asyncio
import json
from base64 import b64encode
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from tests.e2e.chaos import oracle
from tests.e2e.systemd.machine import ETC, UNIT, Machine, use_flags
from tests.support.environment import NODES, SERVICES, VOLUMES, Environment
from tests.support.fault_proxy import FaultProxy
from tests.support.pki import NOW, Authority
from tests.support.replicas import Durations
from tests.support.running import ALL_CONTROLLERS, IS_LONG, RULES, Json, until, until_none

CREDENTIALS = "/etc/ccm-credentials"
NAMESPACE = "unit"
ACCOUNTS = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
EXEC_API = "client.authentication.k8s.io/v1"
PLUGIN = f"#!/bin/sh\nexec cat {CREDENTIALS}/credential\n"


@dataclass(frozen=True)
class Site:
    """It sees the API server through `proxy`, as a service account that has all its rights."""

    machine: Machine
    env: Environment
    proxy: FaultProxy
    authority: Authority
    account: str
    expected: dict[str, str] = field(default_factory=dict)  # UIDs of Nodes, by name

    # --- what it is given

    def use_token(self, *flags: str) -> None:
        """The kubeconfig has the account's token in it."""
        self._write(self._kubeconfig(), *flags)

    def use_token_file(self) -> None:
        self._write(self._kubeconfig(tokenFile=f"{CREDENTIALS}/token"))
        self.put("token", self.new_token())

    def use_plugin(self) -> None:
        command = f"{CREDENTIALS}/plugin"
        plugin = {"apiVersion": EXEC_API, "command": command, "interactiveMode": "Never"}
        self._write(self._kubeconfig(exec=plugin))
        self.put("plugin", PLUGIN, mode="0750")
        self.put_credential()

    def use_certificate(self, valid_for: timedelta) -> None:
        """Without the proxy, which speaks plain HTTP."""
        cluster = self.env.cluster
        cluster.grant(self.account, RULES)
        files = {"client-certificate": "us.crt", "client-key": "us.key"}
        config = self._kubeconfig(**{key: f"{CREDENTIALS}/{files[key]}" for key in files})
        ca = b64encode(cluster.ca_file.read_bytes()).decode()
        entry = {"server": cluster.url, "certificate-authority-data": ca}
        config["clusters"][0]["cluster"] = entry
        self._write(config)
        self.put_certificate(valid_for)

    def put_credential(self) -> None:
        """What the plugin prints."""
        status = {"token": self.new_token()}
        kind = {"apiVersion": EXEC_API, "kind": "ExecCredential"}
        self.put("credential", json.dumps({**kind, "status": status}))

    def put_certificate(self, valid_for: timedelta) -> None:
        signed = self.authority.client(self.account, ends_in=datetime.now(UTC) - NOW + valid_for)
        self.put("us.key", signed.key_pem.decode())
        self.put("us.crt", signed.pem.decode())

    def put(self, name: str, content: str, mode: str = "0640") -> None:
        """Exchange a file that the service reads itself, in one step."""
        path = f"{CREDENTIALS}/{name}"
        new = f'cat > "$0.new" && chgrp ccm-supervisor "$0.new" && chmod {mode} "$0.new"'
        self.machine.run("sh", "-c", f'{new} && mv "$0.new" "$0"', path, text=content)

    def remove(self, name: str) -> None:
        self.machine.run("rm", f"{CREDENTIALS}/{name}")

    def new_token(self) -> str:
        """One of the account, which is created when it is not there."""
        request = self.env.cluster.request
        request("POST", ACCOUNTS, {"metadata": {"name": self.account}}).expect(201, 409)
        answer = request("POST", f"{ACCOUNTS}/{self.account}/token", {"spec": {}}).expect()
        return str(answer.body["status"]["token"])

    def delete_account(self) -> None:
        """Its tokens are refused from now on; its rights are for the next account of its name."""
        self.env.cluster.request("DELETE", f"{ACCOUNTS}/{self.account}").expect()

    def revoke(self) -> None:
        self.env.cluster.revoke(self.account)

    def grant(self) -> None:
        self.env.cluster.service_account_kubeconfig(NAMESPACE, self.account, RULES)

    async def add_nodes(self, count: int) -> None:
        """As many more, each with its machine."""
        first = len(self.expected) + 1
        names = await self.env.add_nodes(count, first)
        listed = (await self.env.api.get(NODES))["items"]
        added = [one["metadata"] for one in listed if one["metadata"]["name"] in names]
        self.expected.update((meta["name"], meta["uid"]) for meta in added)

    # --- how it is

    async def start(self) -> None:
        await asyncio.to_thread(self.machine.run, "systemctl", "start", "--no-block", UNIT)

    def state(self) -> tuple[str, str, str]:
        """Its state, its main process, and how often systemd has started it again."""
        active, main, restarts = map(self.machine.show, ("ActiveState", "MainPID", "NRestarts"))
        return active, main, restarts

    def is_leading(self) -> bool:
        return "holds the lease" in self.machine.show("StatusText")

    async def until_right(self) -> None:
        """Until it leads, and cluster and cloud are as the objects ask for."""
        await self.env.nodes.until_initialized(len(self.expected))
        await until("it leads", self.is_leading)
        await until_none("wrong", self._wrong)

    async def _wrong(self) -> list[str]:
        listed = [(await self.env.api.get(path))["items"] for path in (NODES, SERVICES, VOLUMES)]
        nodes, services, volumes = listed
        asked = [service for service in services if service["metadata"]["name"] != "kubernetes"]
        cloud = await self.env.admin.state()
        strangers: Json = {"load_balancers": [], "routes": []}
        found = oracle.Observed(nodes, asked, volumes, cloud, self.expected, strangers)
        return oracle.differences(found)

    def anonymous_requests(self) -> list[str]:
        """What it asked the API server without credentials."""
        return [
            entry.uri
            for entry in self.env.cluster.audit()
            if entry.user == "system:anonymous" and entry.user_agent.startswith("ccm-supervisor")
        ]

    # --- inside

    def _kubeconfig(self, **user: object) -> Json:
        """`user` stands in it for the account's token."""
        give = self.env.cluster.service_account_kubeconfig
        original = give(NAMESPACE, self.account, RULES)
        config: Json = json.loads(self.proxy.kubeconfig(original).read_text())
        if user:
            config["users"][0]["user"] = user
        return config

    def _write(self, kubeconfig: Json, *flags: str) -> None:
        elected = () if IS_LONG else Durations.short().flags()
        self.machine.write(f"{ETC}/kubeconfig", json.dumps(kubeconfig))
        self.machine.write(f"{ETC}/cloud.conf", self.env.cloud.config.read_text())
        given = ("--cloud-provider=simulated", *ALL_CONTROLLERS, *elected, *flags)
        use_flags(self.machine, *given)
