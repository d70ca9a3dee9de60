"""azure.json: what upstream's file means here, and what is wrong in one."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ccm.cloud.testkit.harness import node
from ccm.errors import ConfigurationFaults, Denied
from ccm.providers.azure.config import ENVIRONMENT, AzureConfig, read_config
from tests.labs.azure.lab import SUBSCRIPTION, Lab
from tests.providers.azure.conftest import Started
from tests.providers.started import checked

GOOD: dict[str, Any] = {
    "cloud": "AzurePublicCloud",
    "tenantId": "t",
    "subscriptionId": "s",
    "resourceGroup": "g",
    "location": "westeurope",
    "aadClientId": "c",
    "aadClientSecret": "not-shown",
}


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ENVIRONMENT.values():
        monkeypatch.delenv(variable, raising=False)


def read(**keys: Any) -> AzureConfig:
    given = {key: value for key, value in {**GOOD, **keys}.items() if value is not None}
    return read_config(json.dumps(given).encode(), "azure.json")


@pytest.mark.parametrize(
    ("keys", "faults"),
    [
        ({"subscriptionId": None, "location": None}, ["subscriptionId: is missing", "location"]),
        ({"aadClientSecret": None}, ["aadClientSecret: is missing"]),
        ({"tenantId": None}, ["tenantId: is missing"]),
        ({"loadBalancerBackendPoolConfigurationType": "nodeIP"}, ["vnetName: is missing"]),
        ({"loadBalancerSku": "basic"}, ["loadBalancerSku: is 'basic'; Azure has retired"]),
        ({"vmType": "vms"}, ["vmType: is 'vms'; use standard, vmss, vmssflex"]),
        ({"cloud": "AzureStackCloud"}, ["cloud: is 'AzureStackCloud'", "resourceManagerEndpoint"]),
        ({"resourceManagerEndpoint": "http://plain"}, ["resourceManagerEndpoint"]),
        ({"caFile": "/nowhere"}, ["caFile"]),
        (
            {"useFederatedWorkloadIdentityExtension": True, "aadClientSecret": None},
            ["aadFederatedTokenFile: is missing"],
        ),
        (
            {"useManagedIdentityExtension": True, "networkResourceTenantID": "other"},
            ["networkResourceTenantID: is of another tenant"],
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_key(keys: dict[str, Any], faults: list[str]) -> None:
    with pytest.raises(ConfigurationFaults) as raised:
        read(**keys)
    text = str(raised.value)
    assert all(fault in text for fault in faults), text
    assert "not-shown" not in text


def test_keys_are_taken_as_go_takes_them(caplog: pytest.LogCaptureFixture) -> None:
    """In any case of letters; those without effect are logged once, with what they may mean."""
    config = read(vmType=None, VmTYPE="Standard", vmCacheTTLInSeconds=60, routeTableNam="x")
    assert config.vm_type == "standard"
    (record,) = caplog.records
    found: Mapping[str, Any] = record.__dict__
    assert found["keys"] == ["vmCacheTTLInSeconds"]
    assert found["unknown"] == {"routeTableNam": "did you mean routeTableName?"}


def test_a_workload_identity_may_be_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", "/token")
    monkeypatch.setenv("AZURE_CLIENT_ID", "webhook")
    config = read(aadClientSecret=None)
    assert config.use_federated_workload_identity_extension
    assert (config.aad_federated_token_file, config.aad_client_id) == ("/token", "webhook")


async def test_check_names_what_the_credentials_lack(lab: Lab, tmp_path: Path) -> None:
    """The list of states, and each read that is denied or fails."""

    async def reported() -> list[str]:
        found = await checked("azure", lab.config(), tmp_path)
        return [one.message for one in found if one.state != "ok"]

    assert await reported() == []
    states = f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Compute/virtualMachines$"
    lab.fail(states, 100, status=403, code="AuthorizationFailed")
    (lack,) = await reported()
    assert "Microsoft.Compute/virtualMachines/read" in lack
    lab.fail("loadBalancers", 100, status=403, code="AuthorizationFailed")
    assert any("ListLoadBalancers" in one for one in await reported())
    lab.settings(secret="another", revoke_tokens=True)
    assert any("AADSTS7000215" in one for one in await reported())


@pytest.mark.parametrize(
    ("file", "secret", "is_read"),
    [
        pytest.param({"cloudConfigType": "merge", "aadClientSecret": None}, True, True, id="merge"),
        pytest.param({"cloudConfigType": "merge"}, False, True, id="merge without a Secret"),
        pytest.param(None, True, True, id="Secret alone"),
        pytest.param({"cloudConfigType": "secret"}, False, False, id="it is missing"),
        pytest.param({}, True, True, id="file"),
    ],
)
async def test_upstreams_secret_counts_before_the_file(
    lab: Lab, file: dict[str, Any] | None, secret: bool, is_read: bool
) -> None:
    """As its configuration loader does it, when the file says so or is not there."""

    async def read_secret(namespace: str, name: str) -> Mapping[str, str]:
        assert (namespace, name) == ("kube-system", "azure-cloud-provider")
        if not secret:
            raise Denied("there is none")
        more = {"aadClientSecret": "secret"} if file is not None else {}
        return {"cloud-config": json.dumps(more) if more else lab.config()}

    text = "" if file is None else lab.config(**file)
    cloud = Started(text, read_secret)
    if not is_read:
        with pytest.raises(Denied):
            await cloud.start()
        return
    lab.add_machine("node-1")
    await (await cloud.start()).known(node("node-1"))
