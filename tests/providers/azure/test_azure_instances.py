"""Nodes and machines in the lab: rows AZ1 to AZ21, AZ57 and AZ59."""

import base64
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)

from ccm.cloud.testkit.harness import node
from ccm.errors import CloudError, Throttled
from ccm.http import HttpResponse
from ccm.model.cloud import AddressType, Gone, Instance, PowerState, Unknown
from ccm.model.objects import Json, Node, format_time
from ccm.providers.azure.identity import METADATA_VARIABLE
from ccm.providers.azure.instances import AzureInstances
from tests.labs.azure.lab import GROUP, OTHER_GROUP, REGION, SIZE, SUBSCRIPTION, Lab, path_of
from tests.providers.azure.conftest import Started, host, provider_id


async def why_unknown(cloud: Started, asked: Node | str) -> str:
    """What is said of a Node, or of all when nothing could be read."""
    try:
        return await cloud.why(asked)
    except CloudError as error:
        return str(error)


async def test_a_node_gets_its_machines_id_with_the_group_in_lower_case(
    lab: Lab, cloud: Started
) -> None:
    """AZ1, AZ2, AZ3: Azure answers in another case than it was asked."""
    machine = lab.add_machine("node-1")
    lab.settings(shout=True)
    found = await cloud.known("node-1")
    assert found.provider_id == f"azure://{path_of('virtualMachines', 'node-1')}"
    assert (found.type, found.region, found.zone) == (SIZE, REGION, f"{REGION}-1")
    old = provider_id(machine).replace("resourceGroups/lab", "resourceGroups/LAB")
    assert (await cloud.known(node("node-1", old))).provider_id == old


async def test_scale_sets_and_single_machines_are_in_one_cluster(lab: Lab) -> None:
    """AZ4, AZ5."""
    lab.add_machine("single", host="flexible00000a")
    lab.add_scale_set("pool", 11, zones=["1", "2"])
    cloud = await Started(lab.config(vmType="vmss")).start()
    answers = await cloud.describe(node("pool00000a"), node("single"), node("flexible00000A"))
    ids = [
        one.provider_id.rpartition("/")[2] for one in answers.values() if isinstance(one, Instance)
    ]
    assert ids == ["10", "single", "single"]
    machine = answers["pool00000a"]
    assert isinstance(machine, Instance)
    assert (machine.zone, machine.type, len(machine.addresses)) == (f"{REGION}-1", SIZE, 2)
    lab.call("DELETE", f"{path_of('virtualMachineScaleSets', 'pool')}?api-version=2025-04-01")
    lab.call("DELETE", f"{machine.provider_id.removeprefix('azure://')}?api-version=2025-04-01")
    assert isinstance(await cloud.describe_one("pool00000a", machine.provider_id), Gone)


@pytest.mark.parametrize(
    ("provider_id", "labels", "why"),
    [
        pytest.param("aws:///a/i-1", {}, "of another cloud", id="another cloud"),
        pytest.param("azure://somewhere", {}, "names no virtual machine", id="no machine"),
        pytest.param(
            f"azure:///subscriptions/{SUBSCRIPTION}/resourceGroups/../providers/Microsoft.Compute"
            "/virtualMachines/node-1",
            {},
            "names no virtual machine",
            id="dots",
        ),
        pytest.param(
            f"azure://{path_of('virtualMachines', 'a').replace(SUBSCRIPTION, '9')}",
            {},
            "of another subscription",
            id="another subscription",
        ),
        pytest.param("", {"kubernetes.azure.com/managed": "false"}, "is not Azure", id="unmanaged"),
    ],
)
async def test_what_is_not_ours_is_left_alone(
    lab: Lab, cloud: Started, provider_id: str, labels: dict[str, str], why: str
) -> None:
    """AZ6: and nothing is asked about it."""
    asked = node("a", provider_id)
    asked.raw["metadata"]["labels"] = labels
    assert why in await cloud.why(asked)


async def test_a_node_whose_kubelet_calls_its_machine_not_azures_is_not_the_clusters(
    lab: Lab, cloud: Started
) -> None:
    """Else it would be behind load balancers without a check, on any machine of the account."""
    hostile = host(lab.add_machine("node-1"), "hostile")
    hostile.raw["metadata"]["labels"] = {"kubernetes.azure.com/managed": "false"}
    assert isinstance(cloud.instances, AzureInstances)
    verdicts = await cloud.instances.foreign([hostile])
    assert "the machine is not Azure's" in verdicts["hostile"]


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        pytest.param({"code": "ResourceGroupNotFound", "status": 404}, "ResourceGroup", id="group"),
        pytest.param({"code": "SubscriptionNotFound", "status": 404}, "Subscript", id="all"),
        pytest.param({"code": "AuthorizationFailed", "status": 403}, "Authoriz", id="denied"),
        pytest.param({"status": 404, "body": "<html>" * 3000}, "not Azure's", id="proxy"),
    ],
)
async def test_only_the_word_on_a_machine_itself_means_gone(
    lab: Lab, cloud: Started, fault: Json, why: str
) -> None:
    """AZ7, AZ8, AZ9, AZ59."""
    machine = lab.add_machine("node-1")
    lab.fail("virtualMachines|networkInterfaces", 100, **fault)
    assert why in await why_unknown(cloud, host(machine))
    lab.heal()
    lab.delete_machine(machine["id"])
    lab.fail("virtualMachines/", 100, **fault)
    assert why in await why_unknown(cloud, host(machine))
    lab.heal()
    assert isinstance(await cloud.describe_one(host(machine)), Gone)


@pytest.mark.parametrize(("age", "kind"), [(20, Unknown), (600, Gone)])
async def test_the_machine_of_a_new_node_may_not_be_listed_yet(
    lab: Lab, cloud: Started, age: int, kind: type
) -> None:
    """AZ10 (upstream's #10604)."""
    asked = node("new", f"azure://{path_of('virtualMachines', 'new')}")
    made = datetime.now(UTC) - timedelta(seconds=age)
    asked.raw["metadata"]["creationTimestamp"] = format_time(made)
    assert isinstance(await cloud.describe_one(asked), kind)


@pytest.mark.parametrize(
    ("power", "provisioning", "state"),
    [
        ("deallocated", "Succeeded", PowerState.STOPPED),
        ("deallocating", "Succeeded", PowerState.STOPPED),
        ("stopped", "Succeeded", PowerState.STOPPED),
        ("stopped", "Updating", PowerState.RUNNING),
        ("stopping", "Succeeded", PowerState.RUNNING),
        ("starting", "Succeeded", PowerState.RUNNING),
        ("running", "Failed", PowerState.RUNNING),
        ("", "Succeeded", PowerState.UNKNOWN),
    ],
)
async def test_a_machine_is_off_when_nothing_is_under_way(
    lab: Lab, cloud: Started, power: str, provisioning: str, state: PowerState
) -> None:
    """AZ11, AZ12, AZ13: without the list of states nothing is said of them."""
    machine = lab.add_machine("node-1")
    statuses = [{"code": f"PowerState/{power}"}] if power else []
    properties = {"provisioningState": provisioning, "instanceView": {"statuses": statuses}}
    lab.merge(machine["id"], properties=properties)
    assert (await cloud.known(host(machine))).power is state


@pytest.mark.parametrize(
    ("record", "zone"),
    [
        pytest.param({"zones": ["2"]}, f"{REGION}-2", id="zone"),
        pytest.param({"zones": ["2"], "location": "West Europe"}, f"{REGION}-2", id="by hand"),
        pytest.param(
            {"zones": None, "properties": {"instanceView": {"platformFaultDomain": 1}}},
            "1",
            id="fault domain",
        ),
        pytest.param({"zones": None}, "0", id="neither"),
    ],
)
async def test_a_place_is_a_zone_or_else_a_fault_domain(
    lab: Lab, cloud: Started, record: Json, zone: str
) -> None:
    """AZ14, AZ15."""
    machine = lab.add_machine("node-1")
    lab.merge(machine["id"], **record)
    found = await cloud.known(host(machine))
    assert (found.zone, found.region) == (zone, REGION)


async def test_without_the_right_to_states_zones_are_known_and_fault_domains_are_not(
    lab: Lab, cloud: Started
) -> None:
    """A role may be of the group alone; `check` names what it lacks."""
    zoned, other = lab.add_machine("zoned"), lab.add_machine("other")
    lab.merge(other["id"], zones=None)
    path = f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Compute/virtualMachines$"
    lab.fail(path, 100, status=403, code="AuthorizationFailed")
    answers = await cloud.describe(host(zoned), host(other))
    assert isinstance(found := answers["zoned"], Instance)
    assert found.power is PowerState.UNKNOWN
    assert isinstance(answers["other"], Unknown)
    assert isinstance(cloud.instances, AzureInstances)
    (missing,) = await cloud.instances.missing_permissions()
    assert "virtualMachines/read" in missing


async def test_many_machines_cost_lists_alone(lab: Lab, cloud: Started) -> None:
    """AZ16: three pages of machines, of their states and of their interfaces."""
    nodes = [host(lab.add_machine(f"node-{number}")) for number in range(201)]
    await cloud.describe(nodes[0])
    lab.forget_calls()
    answers = await cloud.describe(*nodes)
    assert all(isinstance(one, Instance) for one in answers.values())
    assert lab.counted() == {"GET virtualMachines": 6, "GET networkInterfaces": 3}


async def test_the_next_page_is_on_the_same_host(lab: Lab, cloud: Started) -> None:
    """AZ17."""
    page = {"value": [], "nextLink": "https://elsewhere.example/?$skiptoken=1"}
    lab.fail("networkInterfaces", status=200, body=json.dumps(page))
    lab.add_machine("node-1")
    assert "on another host" in await cloud.why("node-1")


async def test_throttling_is_of_one_group_of_calls(lab: Lab, cloud: Started) -> None:
    """AZ18, AZ19: the budget goes by what each answer says is left."""
    lab.settings(reads=10)
    await cloud.why("node-1")
    assert {cloud.gate.remaining[one] for one in ("compute-read", "network-read")} == {(10, 10.0)}
    lab.fail("virtualMachines$", 100, status=429, code="TooManyRequests", retry_after=17)
    assert "429" in await why_unknown(cloud, "node-1")
    throttled = [error for error in cloud.gate.errors if isinstance(error, Throttled)]
    assert {error.seconds for error in throttled} == {17.0}
    assert cloud._api
    for left, known in ((b"60", (60, 1800.0)), (b"0", (0, 10.0))):  # half an hour without any read
        windows = (
            b"Microsoft.Compute/GetVMScaleSetVM3Min;500,Microsoft.Compute/GetVMScaleSetVM30Min;"
        )
        header = {b"x-ms-ratelimit-remaining-resource": windows + left}
        cloud._api.observe(HttpResponse(200, "OK", header, b"{}"))
        assert cloud.gate.remaining["compute-read"] == known


async def test_a_token_that_expired_is_renewed_once_and_a_wrong_secret_is_named(
    lab: Lab, cloud: Started
) -> None:
    """AZ20."""
    machine = lab.add_machine("node-1")
    await cloud.known(host(machine))
    lab.settings(revoke_tokens=True)
    await cloud.known(host(machine))
    assert cloud.operations.count("GetToken") == 2
    lab.settings(revoke_tokens=True, secret="another")
    why = await why_unknown(cloud, host(machine))
    assert "AADSTS7000215" in why
    assert "secret" not in why.replace("client secret", "").replace("credentials", "")


def _claims(assertion: str) -> tuple[Json, Json]:
    parts = [base64.urlsafe_b64decode(part + "==") for part in assertion.split(".")[:2]]
    header, claims = map(json.loads, parts)
    return header, claims


async def test_every_kind_of_credentials_gets_a_token(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AZ21: a managed identity, a token file that is replaced, a certificate in both forms."""
    machine = lab.add_machine("node-1")
    monkeypatch.setenv(METADATA_VARIABLE, lab.url)
    identity: dict[str, Any] = {"useManagedIdentityExtension": True, "aadClientSecret": None}
    await (await Started(lab.config(**identity)).start()).known(host(machine))
    (asked,) = [one for one in lab.calls() if one["path"].startswith("/metadata/identity")]
    assert "resource=https%3A%2F%2Fmanagement.lab%2F" in asked["query"]

    token = tmp_path / "token"
    token.write_text("first.federated.token\n")
    workload: dict[str, Any] = {
        "useFederatedWorkloadIdentityExtension": True,
        "aadFederatedTokenFile": str(token),
        "aadClientSecret": None,
    }
    cloud = await Started(lab.config(**workload)).start()
    await cloud.known(host(machine))
    token.write_text("second.federated.token\n")
    lab.settings(revoke_tokens=True)
    await cloud.known(host(machine))
    assert lab.state()["assertions"] == ["first.federated.token", "second.federated.token"]

    pem, pfx = tmp_path / "both.pem", tmp_path / "both.pfx"
    write_key(pem, pfx)
    for file, password in ((pem, None), (pfx, "word")):
        given: dict[str, Any] = {"aadClientCertPath": str(file), "aadClientSecret": None}
        config = lab.config(**given, aadClientCertPassword=password)
        await (await Started(config).start()).known(host(machine))
        header, claims = _claims(lab.state()["assertions"][-1])
        assert header["alg"] == "PS256"
        assert claims["aud"] == f"{lab.url}/tenant/oauth2/v2.0/token"


def write_key(pem: Path, pfx: Path) -> None:
    """A key with its certificate, in both forms."""
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "client")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(1))
    made = builder.sign(key, SHA256())
    secret, plain = BestAvailableEncryption(b"word"), NoEncryption()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, plain)
    pem.write_bytes(made.public_bytes(Encoding.PEM) + private)
    pfx.write_bytes(pkcs12.serialize_key_and_certificates(None, key, made, None, secret))


async def test_a_machine_of_another_group_belongs_by_its_network(lab: Lab) -> None:
    """AZ52: without `vnetName` the resource group says whose it is."""
    near = lab.add_machine("near", OTHER_GROUP)
    far = lab.add_machine("far", GROUP, "other")
    cloud = await Started(lab.config()).start()
    await cloud.known(host(near))
    assert "does not belong to this cluster" in await cloud.why(host(far))
    cloud = await Started(lab.config(vnetName=None)).start()
    await cloud.known(host(far))
    assert "does not belong to this cluster" in await cloud.why(host(near))


async def test_by_name_a_machine_of_another_group_is_no_nodes(lab: Lab, cloud: Started) -> None:
    """Any Node's ID has another group read, where another cluster's machines may be."""
    lab.add_machine("node-1")
    theirs = [lab.add_machine(f"m-{host}", OTHER_GROUP, host=host) for host in ("node-1", "far")]
    answers = await cloud.describe(node("node-1"), node("far"), host(theirs[0]))
    found = answers["node-1"]
    assert isinstance(found, Instance), found
    assert found.provider_id == f"azure://{path_of('virtualMachines', 'node-1')}"
    assert isinstance(answers["far"], Unknown), answers["far"]


async def test_nodes_that_name_groups_without_end_keep_no_older_one_from_its_own(
    lab: Lab, cloud: Started
) -> None:
    """Without the right to the subscription's lists; with it their number does not matter."""
    near = host(lab.add_machine("near", OTHER_GROUP))
    lab.fail("GET /subscriptions/[^/]+/providers/.*networkInterfaces", 9, status=403, code="No")
    near.raw["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    bad = []
    for number in range(20):
        group = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/a-{number}/providers"
        made = node(f"bad-{number}", f"azure://{group}/Microsoft.Compute/virtualMachines/x")
        made.raw["metadata"]["creationTimestamp"] = "2026-02-01T00:00:00Z"
        bad.append(made)
    answers = await cloud.describe(*bad, near)
    assert isinstance(answers["near"], Instance), answers["near"]


async def test_public_addresses_are_read_in_one_list(lab: Lab, cloud: Started) -> None:
    """Of both families, as dual-stack Nodes have them."""
    pip = {"sku": {"name": "Standard"}, "properties": {"publicIPAllocationMethod": "Static"}}
    nodes = []
    for name in ("node-1", "node-2"):
        made = lab.put("publicIPAddresses", name, pip)
        ip = {"publicIPAddress": {"id": made["id"]}}
        nodes.append(host(lab.add_machine(name, ip=ip)))
    answers = await cloud.describe(*nodes)
    for answer in answers.values():
        assert isinstance(answer, Instance)
        assert [one.type for one in answer.addresses][-1] is AddressType.EXTERNAL_IP
    assert cloud.operations.count("ListPublicAddresses") == 1


@pytest.mark.parametrize("kind", ["denied", "gone", "odd"])
async def test_a_public_address_that_cannot_be_read_is_its_machines_alone(
    lab: Lab, cloud: Started, kind: str
) -> None:
    """It may be of a group for which we have no right."""
    pip = {"sku": {"name": "Standard"}, "properties": {"publicIPAllocationMethod": "Static"}}
    ip = {"publicIPAddress": {"id": lab.put("publicIPAddresses", "a", pip, OTHER_GROUP)["id"]}}
    nodes = [host(lab.add_machine("with", ip=ip)), host(lab.add_machine("without"))]
    if kind == "odd":
        interface = lab.get("networkInterfaces", "with-nic")
        (record,) = interface["properties"]["ipConfigurations"]
        record["properties"]["publicIPAddress"] = {"id": "/odd"}
        lab.merge(interface["id"], properties=interface["properties"])
    else:
        status, code = (
            (403, "AuthorizationFailed") if kind == "denied" else (404, "ResourceGroupNotFound")
        )
        lab.fail(f"GET .*/{OTHER_GROUP}/.*publicIPAddresses", 9, status=status, code=code)
    answers = await cloud.describe(*nodes)
    assert isinstance(answers["with"], Unknown)
    assert isinstance(answers["without"], Instance)


async def test_network_calls_go_to_the_networks_subscription(lab: Lab) -> None:
    """AZ57."""
    lab.add_machine("node-1")
    config = lab.config(networkResourceSubscriptionID="2222")
    await (await Started(config).start()).why("node-1")
    paths = {one["path"] for one in lab.calls() if one["path"].startswith("/subscriptions/")}
    networks = [path for path in paths if "/subscriptions/2222/" in path]
    assert networks
    assert all("Microsoft.Network" in path for path in networks)
