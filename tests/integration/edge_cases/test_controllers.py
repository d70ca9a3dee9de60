"""Which controllers run: names, lists of them, and those that a provider has nothing for."""

import importlib
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ccm.controllers import (
    ALIASES,
    KNOWN,
    LIFECYCLE,
    NODE,
    ROUTE,
    SERVICE,
    canonical,
    is_enabled,
    load_controller,
    provided_by,
    unknown,
)
from ccm.errors import ConfigurationFault, ConfigurationFaults
from ccm.settings import Settings, read, read_arguments
from ccm.worker_names import wanted_workers
from tests.support.cloud import new_provider
from tests.support.installed import install
from tests.support.rows import row
from workers.controller import NotNeeded


@row("OP6")
def test_old_names_become_full_names_in_their_order() -> None:
    given = [SERVICE, "-service", "route", "-cloud-node-lifecycle-controller"]
    assert canonical(given) == (SERVICE, f"-{SERVICE}", ROUTE, f"-{LIFECYCLE}")


@pytest.mark.parametrize("name", [pytest.param(name, id=f"OP10-{name}") for name in KNOWN])
def test_names_of_controllers_have_one_form(name: str) -> None:
    assert re.fullmatch(r"[a-z]([-a-z]*[a-z])?", name)
    assert name.endswith("-controller")
    assert name not in ALIASES


@pytest.mark.parametrize("name", ["nodes", "-nodes", "Service", "-*", "service ", "-"])
def test_an_unknown_name_is_reported_without_its_sign(name: str) -> None:
    assert unknown(canonical(["*", "service", name]), "simulated") == [name.removeprefix("-")]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("*", True),
        ("cloud-node", True),
        ("-cloud-node", False),
        ("*,-cloud-node", False),
        ("-cloud-node,*", False),
        ("cloud-node,-cloud-node", True),
        ("-cloud-node,cloud-node", False),
        ("-service", False),
        ("service", False),
        ("", False),
    ],
)
def test_the_first_item_that_names_a_controller_decides(given: str, expected: bool) -> None:
    items = canonical([item for item in given.split(",") if item])
    assert is_enabled(NODE, items) is expected


@pytest.mark.parametrize(
    ("given", "workers"),
    [
        ("*", {"node-0", "route", "service", "volume-label"}),
        ("cloud-node", {"node-0"}),
        ("cloud-node-lifecycle", {"node-0"}),
        ("*,-cloud-node", {"node-0", "route", "service", "volume-label"}),
        ("*,-cloud-node,-cloud-node-lifecycle,-route", {"service", "volume-label"}),
        ("-service", set()),
        ("*,-tagging", {"node-0", "route", "service", "volume-label"}),
        ("-tagging,tagging", set()),
        ("service,tagging,-tagging", {"service", "tagging"}),
        ("*,tagging", {"node-0", "route", "service", "volume-label", "tagging"}),
    ],
)
def test_a_controller_that_is_off_has_no_worker(given: str, workers: set[str]) -> None:
    assert wanted_workers(Settings(controllers=canonical(given.split(",")))).keys() == workers


@pytest.mark.parametrize("name", sorted(set(wanted_workers(Settings()).values())))
def test_what_the_provider_lacks_is_no_controller_and_no_failure(name: str) -> None:
    settings = Settings(cluster_cidr=("10.0.0.0/8",))
    context: Any = SimpleNamespace(settings=settings, provider=new_provider())
    module = importlib.import_module(f"workers.{name}.controller")
    with pytest.raises(NotNeeded, match="the provider has no"):
        module.new_controller(context)


def test_a_provider_brings_controllers_under_names_that_are_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = "power rack-labels node service volume-label cloud-node-controller node-0 a_b A"
    points = [f"mine.{name} = nowhere.{name}" for name in names.split()]
    install(tmp_path / "site", monkeypatch, *points, "others.power = others", "power = none")
    free = {"power": "nowhere.power", "rack-labels": "nowhere.rack-labels"}
    assert provided_by("mine") == free
    assert unknown(["*", "-power", "rack-labels", "tagging"], "mine") == ["tagging"]
    with pytest.raises(ConfigurationFault, match=r"'power' cannot be imported: .*nowhere"):
        load_controller("power", "mine")


def test_a_command_line_for_upstreams_aws_controller_is_read() -> None:
    words = "--cloud-provider=aws --controllers=*,-tagging --tags=a=1,b= --resources=instance"
    settings = read(read_arguments(words.split()), {}).settings
    assert (settings.tags, settings.resources) == ({"a": "1", "b": ""}, ("instance",))
    assert "tagging" not in wanted_workers(settings)
    with pytest.raises(ConfigurationFaults, match='"tagging" is not in the list of known'):
        read(read_arguments(["--cloud-provider=simulated", "--controllers=*,-tagging"]), {})
