"""Which clouds there are."""

from typing import cast

import pytest

from ccm.cloud import registry
from ccm.cloud.interface import CloudProvider


class Mine:
    """A provider that does nothing."""


@pytest.fixture(autouse=True)
def _nothing_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_in_code", {})


def make() -> CloudProvider:
    return cast(CloudProvider, Mine())


def test_an_installed_cloud_is_known_by_its_entry_point() -> None:
    assert "simulated" in registry.known_providers()
    assert registry.load_provider("simulated").name == "simulated"


def test_a_cloud_can_be_added_in_code() -> None:
    registry.register_cloud_provider("mine", make)
    assert {"aws", "mine", "openstack", "simulated"} <= set(registry.known_providers())
    assert isinstance(registry.load_provider("mine"), Mine)


@pytest.mark.parametrize("name", ["mine", "simulated"])
def test_a_name_is_taken_once(name: str) -> None:
    registry.register_cloud_provider("mine", make)
    with pytest.raises(ValueError, match=name):
        registry.register_cloud_provider(name, make)
