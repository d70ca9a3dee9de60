"""The lab from Python: started if need be, its APIs past the product, faults, and its log."""

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

from tests.support.deadlines import timeout
from tests.support.running import wait_for

HERE = Path(__file__).parent
STATE = Path(os.environ.get("OSLAB_STATE", f"/tmp/ccm-openstack-{os.getuid()}"))
CACHE = (
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ccm-supervisor/openstack"
)
MISSING = "OpenStack is not installed: make lab-openstack"
AGENT = "ccm-supervisor"
WAIT = 60.0  # seconds at rest
RULES_READ_WITHIN = 0.06  # seconds; see gateway.py
PATHS = {
    "nova": "/v2.1",
    "neutron": "/v2.0",
    "octavia": "/v2.0",
    "cinder": "/v3",
    "keystone": "/v3",
}
NOVA_VERSION = {"X-OpenStack-Nova-API-Version": "2.47"}
ROLES = ("member", "reader", "load-balancer_member")
QUOTA = {"instances": 100, "cores": 100, "ram": 100_000}

Json = dict[str, Any]


class Failed(Exception):
    """An API answered with an error."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"{status} {body}")
        self.status = status


class Lab:
    """What a user of the project does, or with `user` another one; it waits as long as it takes."""

    def __init__(self, user: str = "k8s", project: str = "k8s", agent: str = AGENT) -> None:
        """`agent` matches the User-Agent of the requests that faults and counts are about."""
        self.user, self.project, self.agent = user, project, agent
        self.world: Json = json.loads((STATE / "world.json").read_text())
        self.config = (STATE / "cloud.conf").read_text()

    def call(self, service: str, method: str, path: str, body: Any = None) -> Any:
        """The answer's JSON; raises `Failed`."""
        project = f"/{self.world['project_id']}" if service == "cinder" else ""
        headers = {"X-Auth-Token": self._login[0], **(NOVA_VERSION if service == "nova" else {})}
        return self._send(service, method, PATHS[service] + project + path, headers, body)[1]

    def get(self, service: str, path: str) -> Any:
        """The only value in the answer, but for links to pages."""
        answer = self.call(service, "GET", path)
        (key,) = (key for key in answer if not key.endswith("_links"))
        return answer[key]

    @property
    def is_split(self) -> bool:
        """Whether a VIP's port stays behind when its load balancer goes."""
        return "compute_noop_driver" in (STATE / "etc/octavia/octavia.conf").read_text()

    @property
    def user_id(self) -> str:
        return str(self._login[1]["token"]["user"]["id"])

    @property
    def project_id(self) -> str:
        return str(self._login[1]["token"]["project"]["id"])

    @cached_property
    def _login(self) -> tuple[str, Json]:
        """A token, and what Keystone says about it."""
        domain = {"domain": {"id": "default"}}
        user = {"user": {"name": self.user, "password": "secret", **domain}}
        auth = {
            "identity": {"methods": ["password"], "password": user},
            "scope": {"project": {"name": self.project, **domain}},
        }
        headers, body = self._send("keystone", "POST", "/v3/auth/tokens", {}, {"auth": auth})
        return headers["X-Subject-Token"], body

    def _send(
        self, service: str, method: str, path: str, headers: Mapping[str, str], body: Any
    ) -> tuple[Mapping[str, str], Any]:
        request = Request(
            self.world["endpoints"][service] + path,
            method=method,
            headers={"Content-Type": "application/json", **headers},
            data=None if body is None else json.dumps(body).encode(),
        )
        try:
            with build_opener(ProxyHandler({})).open(request, timeout=timeout()) as answer:
                content = answer.read()
                return answer.headers, json.loads(content) if content else {}
        except HTTPError as error:
            raise Failed(error.code, error.read().decode()) from error

    # Faults and counting

    def set_faults(self, *rules: Json) -> None:
        """Rules for the product's requests alone; see gateway.py."""
        text = json.dumps([{"agent": self.agent, **rule} for rule in rules])
        (STATE / "faults.new").write_text(text)
        (STATE / "faults.new").replace(STATE / "faults.json")
        time.sleep(RULES_READ_WITHIN)

    @contextmanager
    def faults(self, *rules: Json) -> Iterator[None]:
        """These rules hold inside."""
        self.set_faults(*rules)
        try:
            yield
        finally:
            self.set_faults()

    def calls(self) -> list[Json]:
        """The product's requests since the lab started, in the order of the services' logs."""
        texts = (file.read_text() for file in (STATE / "calls").glob("*.jsonl"))
        lines = (line for text in texts for line in text.splitlines())
        calls = map(json.loads, lines)
        return [call for call in calls if re.search(self.agent, call["agent"])]

    # Servers

    def create_servers(self, names: Sequence[str], network: str = "nodes") -> list[Json]:
        """Running servers of these names, made at once."""
        made = [self._create_server(name, network) for name in names]
        return [self.wait_for_server(one["id"], "ACTIVE") for one in made]

    def _create_server(self, name: str, network: str) -> Json:
        world = self.world
        server = {
            "name": name,
            "imageRef": world["image"],
            "flavorRef": world["flavors"]["m1.tiny"],
            "availability_zone": "zone-a",
            "networks": [{"uuid": world["networks"][network]}],
        }
        made: Json = self.call("nova", "POST", "/servers", {"server": server})["server"]
        return made

    def wait_for_server(self, server_id: str, status: str) -> Json:
        """The server once it has the status, and addresses."""
        found: Json = wait_for(
            f"{server_id} is {status}",
            lambda: self._server_in(server_id, status),
            WAIT,
        )
        return found

    def _server_in(self, server_id: str, status: str) -> Json | None:
        found: Json = self.get("nova", f"/servers/{server_id}")
        return found if found["status"] == status and found["addresses"] else None

    def act(self, server_id: str, action: str, status: str) -> None:
        """Such as `os-stop`; returns once the server has the status."""
        self.call("nova", "POST", f"/servers/{server_id}/action", {action: None})
        self.wait_for_server(server_id, status)

    def delete(self, service: str, path: str) -> None:
        """Delete, and wait until it is gone."""
        try:
            self.call(service, "DELETE", path)
        except Failed as error:
            if error.status != 404:
                raise
        wait_for(
            f"{path} is gone",
            lambda: self.is_gone(service, path.partition("?")[0]),
            WAIT,
        )

    def is_gone(self, service: str, path: str) -> bool:
        try:
            self.call(service, "GET", path)
        except Failed as error:
            return error.status == 404
        return False


def make_project(name: str) -> None:
    """A project with a user of its name who may do what a controller does, unless it is there."""
    admin = Lab("admin", "admin")
    if admin.call("keystone", "GET", f"/projects?name={name}")["projects"]:
        return
    of = {"name": name, "domain_id": "default"}
    project = admin.call("keystone", "POST", "/projects", {"project": of})["project"]["id"]
    user = admin.call("keystone", "POST", "/users", {"user": {**of, "password": "secret"}})["user"]
    for role in admin.call("keystone", "GET", "/roles")["roles"]:
        if role["name"] in ROLES:
            path = f"/projects/{project}/users/{user['id']}/roles/{role['id']}"
            admin.call("keystone", "PUT", path)
    admin.call("nova", "PUT", f"/os-quota-sets/{project}", {"quota_set": QUOTA})


def is_installed() -> bool:
    """Whether a start would download nothing."""
    return any(CACHE.glob("venv-*/.complete"))


def is_running() -> bool:
    return (STATE / "ready").exists()


@contextmanager
def running_lab() -> Iterator[Lab]:
    """The lab that runs already, or one that is ended again."""
    ours = not is_running()
    if ours:
        subprocess.run([HERE / "lab.sh", "up"], check=True, stdout=subprocess.DEVNULL)
    try:
        lab = Lab()
        lab.set_faults()
        yield lab
    finally:
        if ours:
            subprocess.run([HERE / "lab.sh", "wipe"], check=True)
