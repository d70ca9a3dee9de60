"""The azure.json of upstream's controller, JSON or YAML; all faults are reported at once."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ccm.cloud.config_file import (
    Reading,
    TextReading,
    of_form,
    one_of,
    url,
    whole_number,
    why_no_certificate,
    yaml_boolean,
)
from ccm.cloud.sections import Faults, Format, did_you_mean, keys_of, setting
from ccm.cloud.yaml_file import YamlReader
from ccm.providers.azure.balancer_configs import (
    KEY,
    NAME,
    BalancerConfig,
    check_balancer_configs,
    read_balancer_configs,
)
from ccm.providers.azure.ids import Scope
from ccm.redaction import register_hidden
from ccm.yaml_document import YamlMapping

log = logging.getLogger(__name__)

STANDARD, SCALE_SETS, FLEXIBLE = "standard", "vmss", "vmssflex"
NODE_IP_CONFIGURATION, NODE_IP = "nodeIPConfiguration", "nodeIP"
NODE_PORTS, SHARED = "servicenodeport", "shared"
MOST_RULES = 250  # of a load balancer, as upstream; Azure takes 1,500
FILE, SECRET, MERGE = "file", "secret", "merge"
ADFS = "adfs"
GRACE = 120  # seconds in which a new Node's machine may not be listed yet; upstream has none


def _any_case(*choices: str) -> TextReading:
    """One of these, in any case of letters."""
    known = {item.lower(): item for item in choices}
    return lambda value: known[one_of(known)(value.lower())], f"use {', '.join(choices)}"


_ID: TextReading = of_form(r"[A-Za-z0-9.-]+", "give an ID")
_URL: Reading = partial(url, paths=None), "give https://host"
_WHOLE = whole_number(0, 86_400)
_PORT = whole_number(1, 65535)
_STANDARD = _any_case("standard")[0], "Azure has retired basic ones: use standard"
_POOLS = _any_case(NODE_IP_CONFIGURATION, NODE_IP)
_PROBES = _any_case(NODE_PORTS, SHARED)


ENVIRONMENT = {
    "aad_federated_token_file": "AZURE_FEDERATED_TOKEN_FILE",
    "aad_client_id": "AZURE_CLIENT_ID",
    "aad_client_secret": "AZURE_CLIENT_SECRET",
}


@dataclass(frozen=True, slots=True)
class AzureConfig:
    """What the file says, by upstream's keys; empty text where it says nothing."""

    cloud: str = "AzurePublicCloud"
    tenant_id: str = setting("", _ID)
    subscription_id: str = setting("", _ID)
    network_resource_tenant_id: str = setting("", _ID, name="networkResourceTenantID")
    network_resource_subscription_id: str = setting("", _ID, name="networkResourceSubscriptionID")
    resource_manager_endpoint: str = setting("", _URL)
    resource_group: str = setting("", NAME)
    location: str = ""
    aad_client_id: str = ""
    aad_client_secret: str = setting("", is_secret=True)
    aad_client_cert_path: str = ""
    aad_client_cert_password: str = setting("", is_secret=True)
    use_managed_identity_extension: bool = False
    user_assigned_identity_id: str = setting("", name="userAssignedIdentityID")
    use_federated_workload_identity_extension: bool = False
    aad_federated_token_file: str = ""
    cloud_config_type: str = setting("", _any_case(FILE, SECRET, MERGE))
    vm_type: str = setting(SCALE_SETS, _any_case(STANDARD, SCALE_SETS, FLEXIBLE))
    disable_availability_set_nodes: bool = False
    enable_vmss_flex_nodes: bool = False
    node_instance_not_found_grace_period_in_seconds: int = setting(GRACE, _WHOLE)
    vnet_name: str = setting("", NAME)
    vnet_resource_group: str = setting("", NAME)
    route_table_name: str = setting("", NAME)
    route_table_resource_group: str = setting("", NAME)
    subnet_name: str = setting("", NAME)
    security_group_name: str = setting("", NAME)
    security_group_resource_group: str = setting("", NAME)
    load_balancer_sku: str = setting("standard", _STANDARD)
    load_balancer_name: str = setting("", NAME)
    load_balancer_resource_group: str = setting("", NAME)
    load_balancer_backend_pool_configuration_type: str = setting(NODE_IP_CONFIGURATION, _POOLS)
    exclude_master_from_standard_lb: bool = setting(True, name="excludeMasterFromStandardLB")
    balancers: tuple[BalancerConfig, ...] = setting((), name=KEY)
    disable_outbound_snat: bool = setting(False, name="disableOutboundSNAT")
    maximum_load_balancer_rule_count: int = setting(MOST_RULES, whole_number(1, 1500))
    cluster_service_load_balancer_health_probe_mode: str = setting(NODE_PORTS, _PROBES)
    cluster_service_shared_load_balancer_health_probe_port: int = setting(10256, _PORT)
    cluster_service_shared_load_balancer_health_probe_path: str = "/healthz"
    tags: str = ""
    ca_file: str = ""
    """Ours: the certificates that are trusted beside the system's, for an Azure of one's own."""

    @property
    def scope(self) -> Scope:
        """The cluster's resource group."""
        return Scope(self.subscription_id, self.resource_group)

    @property
    def network_subscription(self) -> str:
        """The subscription of what is Microsoft.Network's."""
        return self.network_resource_subscription_id or self.subscription_id

    def network_scope(self, group: str = "") -> Scope:
        """A resource group of network resources, the cluster's by default."""
        return Scope(self.network_subscription, group or self.resource_group)

    @property
    def has_ip_pools(self) -> bool:
        """Whether machines join by their address, and not by their interface."""
        return self.load_balancer_backend_pool_configuration_type == NODE_IP

    @property
    def resource_tags(self) -> dict[str, str]:
        """Those of what all Services share, as `a=b,c=d` has them."""
        pairs = (item.partition("=") for item in self.tags.split(","))
        return {key.strip(): value.strip() for key, _, value in pairs if key.strip()}

    @property
    def vnet_id(self) -> str:
        """The cluster's virtual network; empty where the file names none."""
        scope, name = self.network_scope(self.vnet_resource_group), self.vnet_name
        return scope.id("Microsoft.Network", "virtualNetworks", name) if name else ""


OTHERS_KEYS = (
    "enableIPTagMutationForExistingPublicIP", "enableMigrateToIPBasedBackendPoolAPI",
    "extendedLocationType", "loadBalancerBackendPoolUpdateIntervalInSeconds",
    "primaryAvailabilitySetName", "primaryScaleSetName", "privateLinkServiceResourceGroup",
    "systemTags",
    "aadMSIDataPlaneIdentityPath", "auxiliaryTokenProvider", "availabilitySetsCacheTTLInSeconds",
    "cloudProviderBackoff", "cloudProviderBackoffDuration", "cloudProviderBackoffExponent",
    "cloudProviderBackoffJitter", "cloudProviderBackoffRetries", "cloudProviderRateLimit",
    "cloudProviderRateLimitBucket", "cloudProviderRateLimitBucketWrite",
    "cloudProviderRateLimitQPS", "cloudProviderRateLimitQPSWrite", "disableAPICallCache",
    "disableAzureStackCloud", "enableMinimumRetryAfter", "identitySystem",
    "listVmssVirtualMachinesWithoutInstanceView", "loadBalancerCacheTTLInSeconds",
    "nonVmssUniformNodesCacheTTLInSeconds", "nsgCacheTTLInSeconds", "plsCacheTTLInSeconds",
    "publicIPCacheTTLInSeconds", "putVMSSVMBatchSize", "routeTableCacheTTLInSeconds",
    "routeUpdateIntervalInSeconds", "routeUpdateWaitingInSeconds", "useInstanceMetadata",
    "userAgent", "vmCacheTTLInSeconds", "vmssCacheTTLInSeconds", "vmssFlexCacheTTLInSeconds",
    "vmssFlexVMCacheTTLInSeconds", "vmssVirtualMachinesCacheTTLInSeconds",
)  # fmt: skip
"""Upstream's that say nothing here: how it asks, waits and remembers is its own business."""


NOT_SERVED = {
    "preConfiguredBackendPoolLoadBalancerTypes": "pools are always kept here",
    "extendedLocationName": "edge zones are not served",
    "tagsMap": "is not read: write it as tags",
}
"""Upstream's that this provider cannot do, and what to say of them."""


def spell(name: str) -> str:
    """What the file calls a field."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


FORM = Format(spell, yaml_boolean)


def read_config(
    content: bytes, path: str, secret: bytes | None = None, *, is_start: bool = True
) -> AzureConfig:
    """The configuration; raises `ConfigurationFaults` with everything wrong in it.

    What `secret` has counts before the file; without it nothing is missing in a file that has to be
    read with one. Keys that are not known have no effect, as upstream;
    at the start they are logged, in one line.
    """
    reader = YamlReader(path, spell)
    root = YamlMapping()
    for document in (content, secret):
        found = reader.parse(document, "cloud") if document else YamlMapping()
        for key, value in found.items():  # Go takes keys in any case of letters
            root.put(_SPELLINGS.get(key.lower(), key), value, found.lines[key])
    unknown = [key for key in root if key not in _SPELLINGS.values()]
    if is_start and root.keys() - set(keys_of(AzureConfig, FORM)):
        without_effect = sorted(key for key in root if key in OTHERS_KEYS)
        hints = {key: did_you_mean(key, _SPELLINGS.values()) for key in sorted(unknown)}
        extra = {"path": path, "keys": without_effect, "unknown": hints}
        log.warning("keys of the cloud configuration have no effect", extra=extra)
    for key, why in NOT_SERVED.items():
        if root.get(key):
            reader.faults.add(key, why, "remove it", root.lines[key])
    for key in root.keys() - set(keys_of(AzureConfig, FORM)):
        del root[key]
    balancers = read_balancer_configs(reader, root, FORM)
    config = _with_environment(reader.read(AzureConfig, root, ""))
    config = replace(config, balancers=balancers)
    if not reader.faults.origins.get("cloudConfigType") and not content:
        config = replace(config, cloud_config_type=SECRET)
    if config.cloud_config_type in ("", FILE) or secret is not None:
        _check(config, reader.faults)
    reader.faults.check()
    register_hidden(config)
    return config


def _with_environment(config: AzureConfig) -> AzureConfig:
    """With what the webhook of workload identities puts into the environment, which counts first.

    As upstream; a token file there is a workload identity whatever the configuration says.
    """
    found = {field: os.environ.get(name, "") for field, name in ENVIRONMENT.items()}
    given: dict[str, Any] = {field: value for field, value in found.items() if value}
    if "aad_federated_token_file" in given:
        config = replace(config, use_federated_workload_identity_extension=True)
    return replace(config, **given)


def _check(config: AzureConfig, faults: Faults) -> None:
    for key in ("subscriptionId", "resourceGroup", "location"):
        if key not in faults.origins:
            faults.add(key, "is missing", "give the cluster's, as Azure has it")
    if why := config.ca_file and why_no_certificate(config.ca_file):
        faults.add("caFile", why, "give the file of a certificate")
    remedy = "give useManagedIdentityExtension, or aadClientId and one of the other credentials"
    ways = {
        "useFederatedWorkloadIdentityExtension": config.use_federated_workload_identity_extension,
        "useManagedIdentityExtension": config.use_managed_identity_extension,
        "aadClientSecret": config.aad_client_secret,
        "aadClientCertPath": config.aad_client_cert_path,
    }
    if not any(ways.values()):
        faults.add("aadClientSecret", "is missing", remedy)
    elif not config.use_managed_identity_extension:
        for key, value in (("aadClientId", config.aad_client_id), ("tenantId", config.tenant_id)):
            if not value:
                faults.add(key, "is missing", "give it")
    if ways["useFederatedWorkloadIdentityExtension"] and not config.aad_federated_token_file:
        faults.add("aadFederatedTokenFile", "is missing", "give the projected token's file")
    if config.use_managed_identity_extension and config.network_resource_tenant_id:
        problem = "is of another tenant, where a managed identity is not known"
        faults.add("networkResourceTenantID", problem, "use a client secret or a certificate")
    _check_balancers(config, faults)
    if config.has_ip_pools and not config.vnet_name:
        faults.add("vnetName", "is missing", "give it, as machines join by their address")
    if config.cloud.lower() not in CLOUDS and not config.resource_manager_endpoint:
        known = ", ".join(dict.fromkeys(CLOUDS))
        remedy = f"use one of {known}, or give resourceManagerEndpoint, which shows the rest"
        faults.add("cloud", f"is {config.cloud!r}, which is not known", remedy)


def _check_balancers(config: AzureConfig, faults: Faults) -> None:
    check_balancer_configs(config.balancers, faults)
    if config.balancers and not config.has_ip_pools:
        remedy = "set it to nodeIP, as several load balancers need it"
        faults.add("loadBalancerBackendPoolConfigurationType", "is not nodeIP", remedy)
    if config.balancers and config.load_balancer_name:
        faults.add("loadBalancerName", f"has no effect beside {KEY}", "remove one of both")


def check_cluster_name(config: AzureConfig, name: str, path: str) -> None:
    """Raise `ConfigurationFaults` where none of several load balancers has the cluster's name."""
    faults = Faults(path)
    if config.balancers and name.lower() not in [item.key for item in config.balancers]:
        remedy = "give one of them the name that --cluster-name has, as upstream wants it"
        faults.add(KEY, f"has no item called {name}", remedy)
    faults.check()


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where a cloud's Resource Manager is, where tokens are given, and their audience."""

    resource_manager: str
    login: str
    audience: str


_PUBLIC = Endpoints(
    "https://management.azure.com",
    "https://login.microsoftonline.com",
    "https://management.core.windows.net",
)
_CHINA = Endpoints(
    "https://management.chinacloudapi.cn",
    "https://login.chinacloudapi.cn",
    "https://management.core.chinacloudapi.cn",
)
_GOVERNMENT = Endpoints(
    "https://management.usgovcloudapi.net",
    "https://login.microsoftonline.us",
    "https://management.core.usgovcloudapi.net",
)
CLOUDS: Mapping[str, Endpoints] = {
    "": _PUBLIC,
    "azurepubliccloud": _PUBLIC,
    "azurecloud": _PUBLIC,
    "azurechinacloud": _CHINA,
    "azureusgovernmentcloud": _GOVERNMENT,
    "azureusgovernment": _GOVERNMENT,
}
"""By what upstream's key `cloud` calls them, in lower case."""
_SPELLINGS = {
    item.lower(): item for item in (*keys_of(AzureConfig, FORM), *OTHERS_KEYS, *NOT_SERVED)
}
