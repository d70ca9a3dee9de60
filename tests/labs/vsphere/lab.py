"""The lab from Python: a server of its own for each that asks, and what its control port does."""

import http.client
import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from tests.support.deadlines import Deadline, timeout

SCRIPT = Path(__file__).with_name("lab.sh")
MISSING = "the lab's vCenter is not built: make lab-vsphere"
START_LIMIT = 120.0  # seconds at rest; a thousand machines take forty
LABELS = {"region": "k8s-region", "zone": "k8s-zone"}

Json = dict[str, Any]


class Lab:
    """One vCenter, as an administrator and as its network see it."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.server, self.port = env["VSPHERE_SERVER"], int(env["VSPHERE_PORT"])
        self.user, self.password = env["VSPHERE_USER"], env["VSPHERE_PASSWORD"]
        self.ca_file = env["VSPHERE_CA_FILE"]
        self._control = urlsplit(env["VSPHERE_CONTROL"]).netloc

    def control(self, method: str, path: str, body: Any = None) -> Any:
        """What the control port answers."""
        connection = http.client.HTTPConnection(self._control, timeout=timeout())
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            content = json.loads(answer.read())
        finally:
            connection.close()
        assert answer.status == 200, f"{method} {path}: {content}"
        return content

    def machines(self) -> dict[str, Json]:
        """All of them by the names of their guests."""
        return {one["hostname"]: one for one in self.control("GET", "/vms")}

    def create(self, *names: str) -> list[Json]:
        """Machines that run, on one host, whose guests are called so."""
        return list(self.control("POST", "/vms", {"names": names}))

    def change(self, machine: str, **change: Any) -> None:
        """As the README says, of the machine that vCenter or its guest calls so."""
        self.control("POST", f"/vms/{machine}", change)

    def set_guest(self, machine: str, *nics: Json, hostname: str = "") -> None:
        """What VMware Tools tell."""
        guest = {"hostname": hostname or machine, "tools": "guestToolsRunning", "nics": list(nics)}
        self.change(machine, guest=guest)

    def fail(self, match: str = "", **fault: Any) -> None:
        """Spoil requests whose SOAP method or path has this in it, from now on."""
        self.control("POST", "/faults", {"match": match, **fault})

    def fail_in_soap(self, method: str, kind: int, count: int = 1) -> None:
        """Have the simulator itself answer with a fault: 2 no permission, 5 object not found."""
        rule = {"MethodName": method, "FaultType": kind, "MaxCount": count}
        self.control("POST", "/soap-faults", rule)

    def edit(self, match: str, *pairs: tuple[str, str], count: int = 0) -> None:
        """Replace texts in answers: what the simulator cannot be made to say is ours then."""
        self.fail(match, replace=pairs, count=count)

    def heal(self) -> None:
        """End all faults."""
        self.control("DELETE", "/faults")
        self.control("DELETE", "/soap-faults")

    def end_sessions(self) -> None:
        """As after half an hour without a call."""
        self.control("DELETE", "/sessions")

    def calls(self) -> Counter[str]:
        """Requests since the last `forget_calls`, by SOAP method or by REST path."""
        return Counter(self.control("GET", "/calls"))

    def forget_calls(self) -> None:
        self.control("DELETE", "/calls")

    def reset(self) -> None:
        """No machines, no faults."""
        self.heal()
        self.control("DELETE", "/vms")
        self.forget_calls()

    def section(self, **more: Any) -> Json:
        """Its entry below `vcenter:`; what is None is left out."""
        keys = {
            "server": self.server,
            "port": self.port,
            "user": self.user,
            "password": self.password,
            "caFile": self.ca_file,
        } | more
        return {key: value for key, value in keys.items() if value is not None}

    def config(self, labels: Mapping[str, str] | None = None, **more: Any) -> str:
        """A cloud-config for it alone."""
        return config_of({"lab": self.section(**more)}, labels=labels)


def config_of(vcenters: Mapping[str, Json], **sections: Any) -> str:
    """A whole file."""
    given = {key: value for key, value in sections.items() if value}
    return yaml.safe_dump({"vcenter": dict(vcenters), **given})


def nic(*addresses: str, network: str = "VM Network", device: int = 4000) -> Json:
    """A network card as VMware Tools tell it."""
    return {"network": network, "addresses": list(addresses), "device": device}


def program() -> Path:
    """The server, whether it is built or not."""
    done = subprocess.run([SCRIPT, "path"], capture_output=True, text=True, check=True)
    return Path(done.stdout.strip())


def is_built() -> bool:
    """Whether a start would compile nothing; in CI it is built first."""
    if "CI" in os.environ:
        subprocess.run([SCRIPT, "install"], check=True, stdout=subprocess.DEVNULL)
    return os.access(program(), os.X_OK)


@contextmanager
def running_lab(folder: Path, flags: Sequence[str] = ("-vm", "12")) -> Iterator[Lab]:
    """A server of its own, whose certificate and log are in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [str(program()), "-dir", str(folder), *flags]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as run,
    ):
        try:
            yield Lab(_read_env(folder / "lab.env", run))
        finally:
            run.terminate()
            run.wait(timeout())


def _read_env(file: Path, run: "subprocess.Popen[bytes]") -> dict[str, str]:
    deadline = Deadline(START_LIMIT)
    while not (file.exists() and file.read_text().endswith("\n")):
        assert run.poll() is None, file.with_name("log").read_text()
        assert not deadline.has_passed(), "the lab does not start"
        time.sleep(0.02)
    return dict(line.split("=", 1) for line in file.read_text().splitlines())
