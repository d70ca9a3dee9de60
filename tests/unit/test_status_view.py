"""The table of `ccm-supervisor status` names every trouble that its JSON knows."""

from typing import Any

from rich.console import Console

from ccm.cli.tables import status_view

QUIET: dict[str, Any] = {
    "version": "0",
    "provider": "simulated",
    "leader": {"is_leader": True, "decision": "holds the lease", "identity": "host_1"},
    "workers": [],
    "informer": {"kinds": {"Node": {"trouble": ""}}},
    "budget": {},
}


def worker(**status: Any) -> dict[str, Any]:
    known = {"name": "node-0", "state": "running", "state_seconds": 1.0, "pid": 1, "restarts": 0}
    return known | {"faults": []} | status


def shown(**changes: Any) -> str:
    console = Console(width=120)
    with console.capture() as text:
        console.print(status_view(QUIET | changes))
    return text.get()


def test_the_faults_of_a_worker_that_refuses_to_start() -> None:
    refuses = worker(state="failed", pid=None, faults=["--cloud-config: [Global] ulr is unknown"])
    assert "node-0: --cloud-config: [Global] ulr is unknown" in shown(workers=[refuses])


def test_the_trouble_of_a_watch() -> None:
    assert "watch of Node: 403 Forbidden" in shown(
        feed={"kinds": {"Node": {"trouble": "403 Forbidden"}, "Service": {"trouble": ""}}}
    )


def test_how_many_unsettled_objects_are_not_listed() -> None:
    many = worker(reasons={f"vm-{number}": "waits" for number in range(25)})
    assert "and 15 more" in shown(workers=[many])
    assert "more" not in shown(workers=[worker(reasons={"vm-1": "waits"})])


def test_a_reason_is_shown_as_it_is() -> None:
    why = "[Global] is wrong for [vm-4 vm-5]"
    assert why in shown(workers=[worker(reasons={"vm-1": why})])
