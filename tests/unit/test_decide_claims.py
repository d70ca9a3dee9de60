"""Which of several Nodes that name one machine is on it."""

from dataclasses import replace

import pytest

from ccm.decide.claims import rightful_node
from ccm.model.cloud import Instance
from ccm.model.objects import Node
from tests.support.nodes import Tweak, addresses, node, with_addresses

UUID, SWAPPED = "00112233-4455-6677-8899-aabbccddeeff", "33221100-5544-7766-8899-aabbccddeeff"
MACHINE = Instance(
    "fake://1",
    addresses=addresses("InternalIP 10.0.0.1", "ExternalIP 192.0.2.1"),
    names=("", "Web-1.example.com", "vm-7"),
    system_uuid=UUID.upper(),
)


def with_uuid(uuid: str) -> Tweak:
    return lambda raw: raw["status"].update(nodeInfo={"systemUUID": uuid})


OTHER = node(with_addresses("InternalIP 10.0.0.9"), with_uuid(UUID[::-1]), name="other")
BY_UUID = node(with_uuid(UUID), name="by-uuid")
WITH_DOMAIN = node(name="vm-7.internal")
BY_ADDRESS = node(with_addresses("Hostname x", "ExternalIP 192.0.2.1"), name="by-address")


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        pytest.param([OTHER], "", id="none-fits"),
        pytest.param([OTHER, BY_UUID, BY_ADDRESS, node(name="web-1")], "web-1", id="first-by-name"),
        pytest.param([node(name="web-1.example.com"), BY_UUID], "web-1.example.com", id="domain"),
        pytest.param([node(name="vm-7")], "vm-7", id="any-of-its-names"),
        pytest.param(
            [node(with_uuid(UUID), name="web-1"), node(with_uuid(UUID), name="web-1.example.com")],
            "web-1.example.com",
            id="its-domain-before-none",
        ),
        pytest.param([OTHER, BY_ADDRESS, BY_UUID], "by-uuid", id="then-by-uuid"),
        pytest.param([WITH_DOMAIN, BY_UUID], "by-uuid", id="by-uuid-before-a-domain-of-its-own"),
        pytest.param([OTHER, BY_ADDRESS, WITH_DOMAIN], "vm-7.internal", id="then-by-its-host-name"),
        pytest.param([node(with_uuid(SWAPPED.upper()))], "node-1", id="uuid-of-swapped-bytes"),
        pytest.param([BY_ADDRESS, OTHER], "by-address", id="then-by-address"),
        pytest.param(
            [node(name="web-1"), node(name="vm-7"), BY_UUID], "by-uuid", id="two-alike-by-name"
        ),
        pytest.param(
            [BY_UUID, node(with_uuid(SWAPPED)), BY_ADDRESS], "by-address", id="two-alike-by-uuid"
        ),
        pytest.param(
            [BY_ADDRESS, node(with_addresses("InternalIP 10.0.0.1"))], "", id="two-alike-by-all"
        ),
    ],
)
def test_the_node_that_fits_the_machine_best_is_on_it(nodes: list[Node], expected: str) -> None:
    assert rightful_node(nodes, MACHINE) == expected


@pytest.mark.parametrize("owner", ["web-1", "10.0.0.1", "of-another-name"])
def test_a_node_called_like_the_first_number_of_an_address_is_not_on_the_machine(
    owner: str,
) -> None:
    """Some clouds find a Node by its address."""
    machine = replace(MACHINE, names=("web-1", "10.0.0.1"), system_uuid="")
    nodes = [node(name="10"), node(with_addresses("InternalIP 10.0.0.1"), name=owner)]
    assert rightful_node(nodes, machine) == owner


def test_a_node_called_like_an_address_takes_no_machine_of_a_node_called_like_it() -> None:
    """Which addresses a machine has, any kubelet may know that gets a certificate for a name."""
    machine = replace(MACHINE, names=("web-1", "10.0.0.1"), system_uuid="")
    assert rightful_node([node(name="10.0.0.1"), node(name="web-1")], machine) == "web-1"


def test_what_the_cloud_does_not_say_fits_no_node() -> None:
    assert rightful_node([node(with_uuid("")), OTHER], Instance("fake://1", names=("",))) == ""
