"""The systemd unit on two hosts of a control plane with true nodes: from a version to the next."""

import json
import sys
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from ccm import __version__
from release.packages import BUILD, PINNED
from release.tree import copy_tree, run
from tests.e2e.systemd.machine import ETC, UNIT, Machine, use_flags, why_not
from tests.labs.kubelets.lab import LEASE, Lab, started
from tests.support.deadlines import slowness
from tests.support.needed import needed
from tests.support.running import long, wait_for

pytestmark = [pytest.mark.real, pytest.mark.alone, long, pytest.mark.timeout(600)]

NEXT = f"{__version__}.post1"
HOSTS = ("cp-1", "cp-2")
ACCOUNT = ("-n", "kube-system", "create", "token", "ccm-supervisor", "--duration=24h")
HANDED_OVER_IN = 1.0  # seconds without a leader
LIBRARIES = "/opt/python/lib"  # where this host's Python finds its own
COMMAND = "/opt/own/bin/ccm-supervisor"
ENVIRONMENT = f"""
cd /opt
export LD_LIBRARY_PATH={LIBRARIES}
ccm-supervisor/bin/python -m venv --without-pip own
echo /opt/ccm-supervisor/lib/python3*/site-packages > needed.pth
mv needed.pth own/lib/python3*/site-packages
"""
"""An environment of its own; what the package needs are the libraries that run the tests."""

INSTALL = f"""
cd /opt
export LD_LIBRARY_PATH={LIBRARIES}
ccm-supervisor/bin/python -m pip --python own/bin/python install --quiet --no-deps --no-index $0
make -f source/systemd/install.mk install-systemd COMMAND={COMMAND}
"""
"""As the page says."""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """One for each version; both are this tree's code."""
    made = {}
    for version in (__version__, NEXT):
        directory = tmp_path_factory.mktemp("wheel")
        source = copy_tree(directory / "source")
        init = source / "ccm" / "__init__.py"
        init.write_text(init.read_text().replace(__version__, version))
        run(*BUILD, *PINNED, "--wheel", f"--out-dir={directory}", source)
        (made[version],) = directory.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    missing = why_not()
    needed(not missing, missing)
    with started() as lab:
        yield lab


@pytest.fixture(scope="module")
def hosts(
    lab: Lab, wheels: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Machine]]:
    """Booted machines in the control plane's network; the older version runs on both."""
    flags = [flag for flag in lab.flags() if not flag.startswith("--cloud-config")]
    rights = run(sys.executable, "-m", "ccm.cli.main", "manifests", "--kind=none", "--", *flags)
    lab.kubectl("apply", "-f", "-", stdin=rights)
    config = json.loads(lab.kubectl("config", "view", "--raw", "--flatten", "-o", "json"))
    config["users"][0]["user"] = {"token": lab.kubectl(*ACCOUNT).strip()}
    with ExitStack() as running:
        machines = {}
        for name in HOSTS:
            directory = tmp_path_factory.mktemp(name)
            machine = machines[name] = running.enter_context(Machine(directory, lab.here()))
            machine.run("hostname", name)
            machine.write(f"{ETC}/kubeconfig", json.dumps(config))
            machine.write(f"{ETC}/cloud.conf", (lab.state / "cloud.conf").read_text())
            use_flags(machine, *flags)
            machine.adapt(f"Environment=LD_LIBRARY_PATH={LIBRARIES}")
            machine.run("sh", "-ec", ENVIRONMENT)
            install(machine, wheels[__version__])
            machine.run("systemctl", "start", UNIT)
        yield machines


def install(machine: Machine, wheel: Path) -> None:
    place = f"/tmp/{wheel.name}"
    machine.run("sh", "-c", "base64 -d > $0", place, text=b64encode(wheel.read_bytes()).decode())
    machine.run("sh", "-ec", INSTALL, place)


def running_version(machine: Machine) -> str:
    """Of the supervisor."""
    found = machine.run("journalctl", "-o", "json", "CCM_LOGGER=ccm.supervisor.supervisor")
    records = [json.loads(line) for line in found.splitlines()]
    starts = [one for one in records if "supervisor started" in one["MESSAGE"]]
    return str(starts[-1]["CCM_VERSION"])


def leader(lab: Lab) -> str:
    holder = lab.get(*LEASE)["spec"].get("holderIdentity") or ""
    return next((name for name in HOSTS if holder.startswith(name)), "")


def test_hosts_are_upgraded_one_after_the_other_and_no_one_notices(
    lab: Lab, hosts: Mapping[str, Machine], wheels: Mapping[str, Path]
) -> None:
    """First the one that leads; requests go through the load balancer, Pods and labels change."""
    url = lab.serve()
    first = wait_for("one leads", lambda: leader(lab))
    second = next(name for name in HOSTS if name != first)
    assert [running_version(hosts[name]) for name in HOSTS] == [__version__] * 2
    before = lab.cloud("counters")["writes"]
    with lab.leaders() as leaders, lab.traffic(url) as traffic, lab.churn():
        for name, successor in ((first, second), (second, first)):
            install(hosts[name], wheels[NEXT])
            hosts[name].run("systemctl", "restart", UNIT)
            assert leader(lab) == successor
    print(f"upgrade: without a leader {leaders.longest_gap:.2f} s, {traffic}")
    assert [running_version(hosts[name]) for name in HOSTS] == [NEXT] * 2
    assert not traffic.failed
    assert lab.cloud("counters")["writes"] == before
    assert leaders.longest_gap < HANDED_OVER_IN * slowness()
