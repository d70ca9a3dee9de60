"""The chart says what `manifests` says, for the same flags, and every value reaches its place."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from release.chart import CHART, made_files
from tests.e2e.rbac.grants import objects, rendered
from tests.integration.chart.helm import Refused, as_values, helm, template
from tests.support.kube.cluster import RealCluster
from tests.support.running import Json

HERE = Path(__file__).parent
FULL: Json = yaml.safe_load((HERE / "full.yaml").read_text())
MINIMAL = {"flags": {"cloud-provider": "aws"}}

Grant = tuple[str, ...]  # account, namespace, group, resource, verb, name

COMBINATIONS = (
    ("--cloud-provider=simulated",),
    ("--cloud-provider=simulated", "--use-service-account-credentials=true"),
    ("--cloud-provider=aws", "--controllers=*,tagging"),
    ("--cloud-provider=aws", "--controllers=tagging", "--use-service-account-credentials=true"),
    ("--cloud-provider=openstack", "--controllers=service", "--controllers=volume-label"),
    ("--cloud-provider=aws", "--controllers=-route", "--controllers=*"),
    ("--cloud-provider=aws", "--controllers=route,-route,*", "--leader-elect=false"),
    ("--cloud-provider=aws", "--controllers=*,-service-lb-controller", "--secure-port=0"),
    ("--cloud-provider=aws", "--controllers=cloud-node-lifecycle"),
    ("--cloud-provider=aws", "--leader-elect-resource-name=mine", "--secure-port=10268"),
    ("--cloud-provider=aws", "--leader-elect-resource-namespace=clouds", "--shutdown-timeout=90s"),
    ("--cloud-provider=aws", "--authentication-skip-lookup=true", "--bind-address=127.0.0.1"),
    ("--cloud-provider=aws", "--cloud-config=/etc/cloud/cloud.conf", "--bind-address=::"),
)


@pytest.mark.parametrize("flags", COMBINATIONS, ids=" ".join)
@pytest.mark.parametrize("kind", ["daemonset", "deployment", "none"])
def test_it_has_the_objects_of_the_command(
    flags: tuple[str, ...], kind: str, tmp_path: Path
) -> None:
    chart = template(tmp_path, {"flags": as_values(flags), "kind": kind}, "clouds")
    ours = rendered(f"--kind={kind}", "--namespace=clouds", *flags)
    assert grants(chart) == grants(ours)
    assert accounts(chart) == accounts(ours)
    assert workloads(chart) == workloads(ours)


def grants(text: str) -> set[Grant]:
    """What accounts may do, without what something wider says as well."""
    roles = {role_key(role): role["rules"] for role in objects(text, "Role", "ClusterRole")}
    found: set[Grant] = set()
    for binding in objects(text, "RoleBinding", "ClusterRoleBinding"):
        (subject,) = binding["subjects"]
        namespace = binding["metadata"].get("namespace", "")
        account = f"{subject['namespace']}/{subject['name']}"
        key = (binding["roleRef"]["kind"], namespace, binding["roleRef"]["name"])
        for rule in roles.get(key, []):
            found |= {
                (account, namespace, group, resource, verb, name)
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
                for name in rule.get("resourceNames", [""])
            }
        if key not in roles:  # one of the API server's own
            found.add((account, namespace, *key[::2]))
    return {one for one in found if not wider(one) & found}


def wider(grant: Grant) -> set[Grant]:
    """The same in all namespaces, for all names, or both."""
    account, namespace, *what, name = grant
    all_of_it = {(account, place, *what, one) for place in {namespace, ""} for one in {name, ""}}
    return all_of_it - {grant}


def role_key(role: Json) -> tuple[str, str, str]:
    return role["kind"], role["metadata"].get("namespace", ""), role["metadata"]["name"]


def accounts(text: str) -> set[tuple[str, str, bool]]:
    return {
        (meta["namespace"], meta["name"], each["automountServiceAccountToken"])
        for each in objects(text, "ServiceAccount")
        for meta in [each["metadata"]]
    }


def workloads(text: str) -> dict[str, Any]:
    """The specs of what runs, but for what the command leaves to the API server's defaults."""
    found = {}
    for body in objects(text, "DaemonSet", "Deployment", "PodDisruptionBudget"):
        if pod := body["spec"].get("template", {}).get("spec"):
            (container,) = pod["containers"]
            container.pop("imagePullPolicy", None)
            container["args"] = sorted(part for flag in container["args"] for part in parts(flag))
        found[body["kind"]] = body["spec"]
    return found


def parts(flag: str) -> list[str]:
    """A list of a flag, however it is written."""
    name, _, text = flag.partition("=")
    return [f"{name}={one}" for one in text.split(",")]


def test_what_follows_from_the_code_is_what_the_code_says() -> None:
    assert [str(p) for p, text in made_files() if p.read_text() != text] == [], "do: make chart"


@pytest.mark.parametrize("values", [MINIMAL, FULL], ids=["minimal", "full"])
def test_it_is_linted(values: Json, tmp_path: Path) -> None:
    assert "0 chart(s) failed" in helm(tmp_path, "lint", "--strict", str(CHART), values=values)


@pytest.mark.parametrize("name", ["minimal", "full"])
def test_every_value_has_its_place(name: str, tmp_path: Path) -> None:
    said = template(tmp_path, FULL if name == "full" else MINIMAL)
    said, dashboards = re.subn(r"(ccm-supervisor\.json: ).*", r"\1…", said)
    assert dashboards == (name == "full")
    kept = HERE / f"{name}.rendered.yaml"
    if said != kept.read_text():
        (tmp_path / "new.yaml").write_text(said)
        pytest.fail(f"look at the difference, then: cp {tmp_path}/new.yaml {kept}")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "cloud-provider"),
        ({"flags": {"cloud-provider": "aws", "clustr-name": "x"}}, "clustr-name"),
        ({"flags": {"cloud-provider": "aws", "leader-elect": "no"}}, "leader-elect"),
        ({"flags": {"cloud-provider": "aws", "shutdown-timeout": "1m"}}, "shutdown-timeout"),
        ({"flags": {"cloud-provider": "aws", "config": "/f"}}, "config"),
        ({"flags": {"cloud-provider": "aws", "cloud-config": "/cloud.conf"}}, "/etc/cloud/cloud.c"),
        *(
            ({"flags": {"cloud-provider": "aws", name: value}}, name)
            for name, value in {
                "concurrent-service-syncs": "lots",
                "leader-elect-lease-duration": 5,
                "leader-elect-retry-period": "two seconds",
                "node-workers": 0,
                "v": "loud",
                "secure-port": 70000,
                "cluster-cidr": "pods",
                "bind-address": "localhost",
                "worker-memory-limit": "lots",
                "kube-api-qps": -1,
                "logging-format": "xml",
                "cloud-rate": ["fast"],
                "docs-url": "wiki",
            }.items()
        ),
        ({**MINIMAL, "kind": "pod"}, "kind"),
        ({**MINIMAL, "nameOverride": "Blue_1"}, "nameOverride"),
        ({**MINIMAL, "replicas": "3"}, "replicas"),
        ({**MINIMAL, "image": {"pullPolicy": "Sometimes"}}, "pullPolicy"),
        ({**MINIMAL, "image": {"digest": "latest"}}, "digest"),
        ({**MINIMAL, "env": [{"value": "x"}]}, "name"),
        ({**MINIMAL, "podLabels": {"tier": 1}}, "tier"),
        ({**MINIMAL, "podMonitor": {"interval": "often"}}, "interval"),
        ({**MINIMAL, "tolerations": {}}, "tolerations"),
        ({**MINIMAL, "toleration": []}, "toleration"),
        ({**MINIMAL, "secretFiles": [{"secretName": "x"}]}, "mountPath"),
        ({**MINIMAL, "cloudConfig": "[Global]"}, "flags.cloud-config"),
        *(
            (
                {
                    "flags": {"cloud-provider": "aws", "tls-cert-file": "/tls/tls.crt"},
                    name: {"enabled": True, "bearerTokenSecret": {"name": "x", "key": "token"}},
                },
                f"{name}.tlsConfig",
            )
            for name in ("podMonitor", "serviceMonitor")
        ),
    ],
)
def test_a_wrong_value_is_refused_by_name(values: Json, said: str, tmp_path: Path) -> None:
    with pytest.raises(Refused, match=said):
        template(tmp_path, values)


def test_two_releases_share_no_object(tmp_path: Path) -> None:
    flags = {"cloud-provider": "aws", "use-service-account-credentials": False}
    one, other = (
        {
            (body["kind"], body["metadata"].get("namespace", ""), body["metadata"]["name"])
            for body in yaml.safe_load_all(template(tmp_path, {"flags": flags, **more}))
            if body
        }
        for more in ({}, {"nameOverride": "ccm-edge"})
    )
    assert one
    assert len(one) == len(other)
    assert one.isdisjoint(other)


@pytest.mark.real
@pytest.mark.parametrize("values", [MINIMAL, FULL], ids=["minimal", "full"])
def test_a_real_server_takes_all_of_it(values: Json, kube: RealCluster, tmp_path: Path) -> None:
    where = (f"--kubeconfig={kube.kubeconfig('admin')}", "--namespace=kube-system")
    off = {"enabled": False}  # kinds that no API server has by itself
    given = {**values, "podMonitor": off, "serviceMonitor": off, "prometheusRule": off}
    said = helm(
        tmp_path,
        "install",
        "ccm",
        str(CHART),
        "--dry-run=server",
        "--take-ownership",
        *where,
        values=given,
    )
    assert "is in kube-system" in said


@pytest.mark.real
def test_a_release_leaves_accounts_that_others_made(kube: RealCluster, tmp_path: Path) -> None:
    """Upstream's controllers make those that they act as, and want them back after a rollback."""
    accounts = "/api/v1/namespaces/kube-system/serviceaccounts"
    theirs, ours = "service-controller", "cloud-node-controller"
    flags = {"cloud-provider": "simulated", "use-service-account-credentials": True}
    where = (f"--kubeconfig={kube.kubeconfig('admin')}", "--namespace=kube-system")

    def release(verb: str) -> set[str]:
        """What there is of the two when helm has done so."""
        helm(tmp_path, verb, "ccm", str(CHART), *where, values={"flags": flags})
        return there()

    def there() -> set[str]:
        found = kube.request("GET", accounts).expect().body["items"]
        return {each["metadata"]["name"] for each in found} & {theirs, ours}

    for name in (theirs, ours):
        kube.request("DELETE", f"{accounts}/{name}")
    kube.request("POST", accounts, {"metadata": {"name": theirs}}).expect()
    try:
        assert release("install") == release("upgrade") == {theirs, ours}
        beside = {"flags": flags, "nameOverride": "ccm-edge", "kind": "deployment"}
        for verb in ("install", "upgrade"):
            helm(tmp_path, verb, "edge", str(CHART), *where, values=beside)
        kube.request("DELETE", f"{accounts}/{ours}").expect()
        assert release("upgrade") == {theirs, ours}
    finally:
        helm(tmp_path, "uninstall", "ccm", "edge", *where)
    assert there() == {theirs}
