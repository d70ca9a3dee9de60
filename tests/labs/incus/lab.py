"""The lab from Python: started if need be, its API past the product, traffic, and its faults."""

import http.client
import json
import os
import shlex
import socket
import subprocess
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

from tests.labs.incus.gateway import Gateway
from tests.support.deadlines import PATIENCE, timeout
from tests.support.running import wait_for

HERE = Path(__file__).parent
SCRIPT = HERE / "lab.sh"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ccm-supervisor/incus"
MISSING = "Incus is not installed: make lab-incus"
OPERATION_TIMEOUT = 60

Json = dict[str, Any]
T = TypeVar("T")


class Failed(Exception):
    """Incus answered with an error."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"{status} {said}")
        self.status = status


class Lab:
    """What an administrator does; it waits for operations."""

    def __init__(self, name: str = "lab") -> None:
        self.name = name
        words = shlex.split(self.run("env").replace("export ", ""))
        self.env = dict(word.split("=", 1) for word in words)
        self.project, self.network = self.env["INCUS_PROJECT"], self.env["INCUS_NETWORK"]

    def run(self, *words: str) -> str:
        """What a command of lab.sh prints."""
        command = [str(SCRIPT), words[0], self.name, *words[1:]]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=timeout()
        )
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout.strip()

    def config(self, url: str = "", *projects: str, who: str = "CLIENT", more: str = "") -> str:
        """A cloud-config file for these projects, at `url` or over TLS with a certificate."""
        env = self.env
        remote = [
            '[Remote "lab"]',
            f"url = {url or env['INCUS_URL']}",
            f"certificate = {env[f'INCUS_{who}_CERT']}",
            f"key = {env[f'INCUS_{who}_KEY']}",
            f"server-certificate = {env['INCUS_SERVER_CERT']}",
            *(f"project = {one}" for one in projects or (self.project,)),
        ]
        rest = ("[Node]", "zone-key = user.zone", "[LoadBalancer]", f"network = {self.network}")
        return "\n".join((*remote, *rest, more))

    # The API

    def call(
        self, method: str, path: str, body: Any = None, project: str = "", **query: Any
    ) -> Any:
        """The metadata of the answer, of an operation when it has ended; raises `Failed`."""
        query["project"] = project or self.project
        connection = UnixConnection(self.env["INCUS_SOCKET"])
        try:
            content = None if body is None else json.dumps(body)
            headers = {"Content-Type": "application/json"}
            connection.request(method, f"/1.0{path}?{urlencode(query)}", content, headers)
            answer = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        if answer["type"] == "error":
            raise Failed(answer["error_code"], answer["error"])
        if answer["type"] != "async":
            return answer["metadata"]
        operation = answer["operation"].removeprefix("/1.0").partition("?")[0]
        done = self.call("GET", f"{operation}/wait", timeout=OPERATION_TIMEOUT)
        if done["err"]:
            raise Failed(500, done["err"])
        return done["metadata"]

    def get(self, path: str, project: str = "", **query: Any) -> Any:
        return self.call("GET", path, None, project, **query)

    def delete(self, path: str, project: str = "") -> None:
        """Success when it is gone."""
        try:
            self.call("DELETE", path, None, project)
        except Failed as error:
            if error.status != 404:
                raise

    # Instances

    def create(
        self,
        *names: str,
        project: str = "",
        config: Mapping[str, str] | None = None,
        **query: str,
    ) -> list[Json]:
        """Running instances like those of the lab, with addresses; `target` is a member."""
        source = {"type": "image", "alias": self.env["INCUS_IMAGE"], "project": "default"}
        for name in names:
            body = {"name": name, "source": source, "config": config or {}}
            self.call("POST", "/instances", body, project, **query)
        self.set_state(names, "start", project)
        return [self.instance(name, project) for name in names]

    def set_state(self, names: Collection[str], action: str, project: str = "") -> None:
        """`start` or `stop`; returns when they run and have addresses of both families."""
        wanted = {"start": "Running", "stop": "Stopped"}[action]
        for name in names:
            if self.instance(name, project)["status"] == wanted:
                continue
            body = {"action": action, "force": True, "timeout": 30}
            self.call("PUT", f"/instances/{name}/state", body, project)
        if action == "start":
            for name in names:
                until(partial(self._has_addresses, name, project), f"{name} has addresses")

    def _has_addresses(self, name: str, project: str) -> bool:
        families = {address["family"] for address in self.addresses(name, project)}
        return len(families) > 1 if (project or self.project) == self.project else bool(families)

    def instance(self, name: str, project: str = "") -> Json:
        found: Json = self.get(f"/instances/{name}", project, recursion=1)
        return found

    def addresses(self, name: str, project: str = "") -> list[Json]:
        """The global addresses of its first NIC."""
        network = (self.instance(name, project)["state"] or {}).get("network") or {}
        nic = network.get("eth0", {"addresses": []})
        return [one for one in nic["addresses"] if one["scope"] == "global"]

    def remove(self, *names: str, project: str = "") -> None:
        for name in names:
            body = {"action": "stop", "force": True, "timeout": 30}
            with suppress(Failed):  # it does not run, or is not there
                self.call("PUT", f"/instances/{name}/state", body, project)
            self.delete(f"/instances/{name}", project)

    # Traffic and faults

    def answers(self, url: str, count: int = 12) -> Counter[str]:
        """Who answers so many requests from inside the lab; `DOWN` is nobody."""
        lines = (line.split(" ", 1) for line in self.run("get", url, str(count)).splitlines())
        return Counter({who: int(times) for times, who in lines})

    def pid(self) -> str:
        """The first member's process 1, as this host sees it."""
        return Path(self.env["INCUS_SOCKET"]).parents[1].joinpath("pid").read_text().strip()

    def crashes(self) -> int:
        """How often Open vSwitch has ended by itself; no traffic flows until it is back."""
        logs = Path(self.env["INCUS_SOCKET"]).parents[2].glob("m*/log/vswitchd.log")
        return sum(log.read_text(errors="replace").count("|EMER|") for log in logs)

    def forward(self, address: str, port: int) -> str:
        """The URL on this host's loopback that leads to an address in the lab."""
        return f"http://{self.run('forward', address, str(port))}"

    def gateway(self, socket_path: Path, certificate: str = "CLIENT") -> Gateway:
        """What stands before it to count and to fail."""
        env = self.env
        files = (env[f"INCUS_{certificate}_CERT"], env[f"INCUS_{certificate}_KEY"])
        return Gateway(env["INCUS_URL"], socket_path, env["INCUS_SERVER_CERT"], *files)


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("incus", timeout=timeout())
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def until(look: Callable[[], T], what: str, seconds: float = PATIENCE) -> T:
    """What `look` returns once it is true."""
    return wait_for(what, look, seconds)


def is_installed() -> bool:
    """Whether a start would download nothing."""
    return (CACHE / "root/.complete").exists() and os.geteuid() == 0


def is_running(name: str = "lab") -> bool:
    done = subprocess.run([SCRIPT, "status"], capture_output=True, text=True, check=False)
    return f"{name} up" in done.stdout


@contextmanager
def running_lab(name: str = "lab", members: int = 1) -> Iterator[Lab]:
    """The lab that runs already, or one that is ended again."""
    ours = not is_running(name)
    if ours:
        command = [str(SCRIPT), "up", name, "--members", str(members)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    try:
        yield Lab(name)
    finally:
        if ours:
            subprocess.run([SCRIPT, "wipe", name], check=True)
