"""The shipped unit under a real systemd: start, status, reload, watchdog, stop, and its sandbox."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.systemd.machine import ETC, UNIT, Machine, use_flags
from tests.support.deadlines import timeout
from tests.support.namespaces import SOURCE
from tests.support.running import wait_for

COMMAND = "/opt/ccm-supervisor/bin/ccm-supervisor"
CONFIGURATION = "78"
NOTIFY_RELOAD = 253  # the systemd that has it


@pytest.fixture
def machine(booted: Machine) -> Iterator[Machine]:
    """The same, with the service as it is shipped and not running."""
    use_flags(booted, "--cloud-provider=simulated")
    booted.adapt()
    yield booted
    booted.attempt("systemctl", "stop", UNIT)
    booted.attempt("systemctl", "reset-failed", UNIT)


def worker(machine: Machine) -> dict[str, Any]:
    """What the supervisor says of its worker."""
    done = machine.attempt(COMMAND, "status", "-o", "json")
    status = json.loads(done.stdout) if done.returncode == 0 else {"workers": [{}]}
    first: dict[str, Any] = status["workers"][0]
    return first


def start(machine: Machine) -> int:
    """Start the service; the process of its worker once that has everything, leading or not."""
    machine.run("systemctl", "start", UNIT)
    return wait_up(machine)


def wait_up(machine: Machine) -> int:
    wait_for("the worker is up", lambda: worker(machine).get("state") in ("standby", "running"))
    return int(worker(machine)["pid"])


def wait_replaced(machine: Machine, old: int) -> None:
    wait_for("another worker works", lambda: worker(machine).get("pid") not in (None, old))


def test_the_start_is_over_when_the_workers_are_up(machine: Machine) -> None:
    machine.run("systemctl", "start", UNIT)
    assert worker(machine)["state"] in ("standby", "running")
    assert machine.show("ActiveState") == "active"
    wait_for("it leads", lambda: "holds the lease" in machine.show("StatusText"))
    assert "workers: 3 running, 1 skipped" in machine.show("StatusText")


def test_the_journal_has_the_fields_of_each_record(machine: Machine) -> None:
    start(machine)
    found = machine.run("journalctl", "-o", "json", "CCM_LOGGER=ccm.supervisor.supervisor")
    reported = [json.loads(line) for line in found.splitlines()]
    (started,) = [one for one in reported if "supervisor started" in one["MESSAGE"]][-1:]
    fields = ("CCM_PROCESS", "PRIORITY", "SYSLOG_IDENTIFIER", "_SYSTEMD_UNIT")
    assert [started[name] for name in fields] == ["supervisor", "6", "ccm-supervisor", UNIT]
    assert started["CCM_VERSION"]


def test_the_service_works_unprivileged_in_its_sandbox(machine: Machine) -> None:
    pid = start(machine)
    status = machine.run("cat", f"/proc/{pid}/status")
    fields = dict(line.split(":", 1) for line in status.splitlines())
    assert machine.run("id", "-u", "ccm-supervisor").strip() in fields["Uid"].split()
    assert int(fields["CapEff"], 16) == int(fields["CapBnd"], 16) == 0
    assert fields["NoNewPrivs"].strip() == "1"
    assert fields["Seccomp"].strip() == "2"
    mode = machine.run("stat", "--format=%a %U", "/run/ccm-supervisor").split()
    assert mode == ["700", "ccm-supervisor"]


def test_a_reload_is_over_when_new_workers_have_taken_over(machine: Machine) -> None:
    old, main = start(machine), machine.show("MainPID")
    machine.run("systemctl", "reload", UNIT)
    wait_replaced(machine, old)
    wait_for("the reload is over", lambda: machine.show("SubState") == "running")
    assert machine.show("MainPID") == main


def test_notify_reload_returns_when_new_workers_have_taken_over(machine: Machine) -> None:
    """A systemd that does not know the type starts the service all the same, and cannot reload."""
    version = int(machine.run("systemctl", "--version").split()[1])
    drop_in = SOURCE / "systemd/notify-reload.conf"
    machine.adapt(*drop_in.read_text().splitlines())
    old = start(machine)
    is_known = version >= NOTIFY_RELOAD
    assert (machine.attempt("systemctl", "reload", UNIT).returncode == 0) == is_known
    assert (worker(machine)["pid"] != old) == is_known
    assert machine.show("SubState") == "running"


def test_a_killed_worker_is_not_a_failed_service(machine: Machine) -> None:
    old, main = start(machine), machine.show("MainPID")
    machine.run("kill", "-KILL", str(old))
    wait_replaced(machine, old)
    wait_up(machine)
    assert (machine.show("MainPID"), machine.show("NRestarts")) == (main, "0")


def test_a_hanging_supervisor_is_replaced(machine: Machine) -> None:
    machine.adapt(f"WatchdogSec={timeout(1.0):g}", "TimeoutAbortSec=1", "RestartSec=0")
    worker_pid, main = start(machine), machine.show("MainPID")
    machine.run("kill", "-STOP", main)
    wait_for("systemd starts another", lambda: machine.show("NRestarts") == "1")
    wait_for("it is active", lambda: machine.show("ActiveState") == "active")
    assert machine.show("MainPID") != main
    assert f"{UNIT}: Watchdog timeout" in machine.journal()
    assert machine.attempt("kill", "-0", str(worker_pid)).returncode != 0


def test_a_working_supervisor_is_left_alone_by_the_watchdog(machine: Machine) -> None:
    seconds = timeout(0.5)
    machine.adapt(f"WatchdogSec={seconds:g}")
    start(machine)
    main, begin = machine.show("MainPID"), int(machine.show("WatchdogTimestampMonotonic"))
    wait_for(
        "it was fed for three times its limit",
        lambda: int(machine.show("WatchdogTimestampMonotonic")) > begin + 3e6 * seconds,
    )
    assert (machine.show("MainPID"), machine.show("NRestarts")) == (main, "0")


def test_a_stop_drains_and_leaves_nothing(machine: Machine) -> None:
    pid = start(machine)
    machine.run("systemctl", "stop", UNIT)
    assert (machine.show("ActiveState"), machine.show("Result")) == ("inactive", "success")
    assert machine.attempt("kill", "-0", str(pid)).returncode != 0
    assert machine.attempt("ls", "/run/ccm-supervisor").returncode != 0


def test_a_long_drain_gets_the_time_it_asks_for(machine: Machine) -> None:
    seconds = timeout(0.5)
    machine.adapt(f"TimeoutStopSec={seconds:g}")
    drain = (f"--shutdown-timeout={seconds + 3:g}s", "--worker-silence-limit=10m")
    use_flags(machine, "--cloud-provider=simulated", *drain)
    machine.run("kill", "-STOP", str(start(machine)))  # it cannot drain
    machine.run("systemctl", "stop", UNIT)
    assert machine.show("Result") == "success"
    assert "workers did not finish in time and are killed" in machine.journal()


def test_a_wrong_configuration_is_not_tried_again(machine: Machine) -> None:
    machine.adapt("RestartSec=0")
    use_flags(machine, "--cloud-provider=nonesuch")
    assert machine.attempt("systemctl", "start", UNIT).returncode != 0
    assert machine.show("ActiveState") == "failed"
    assert (machine.show("ExecMainStatus"), machine.show("NRestarts")) == (CONFIGURATION, "0")


def test_a_second_installation_keeps_the_operators_flags(machine: Machine) -> None:
    use_flags(machine, "--cloud-provider=simulated", "--node-workers=2")
    machine.run("make", "-f", "/opt/source/systemd/install.mk", "install-systemd")
    assert "--node-workers=2" in machine.run("cat", f"{ETC}/ccm-supervisor.env")
