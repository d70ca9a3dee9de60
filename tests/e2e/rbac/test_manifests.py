"""What `ccm-supervisor manifests` prints: stable, minimal, shipped as it is, and documented."""

import json
import shlex
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from ccm import __version__
from ccm.cli.main import main
from ccm.errors import ExitCode
from ccm.kube.service_accounts import ACCOUNTS, account_name
from ccm.manifests.rbac import subjects
from ccm.manifests.workload import CONTROL_PLANE, RUN, USER
from ccm.model.rbac import PolicyRule
from ccm.settings import Settings
from release.image import CONFIG
from release.tree import NAME
from tests.docs.pages import table_rows
from tests.e2e.rbac.grants import objects, rendered
from tests.support.running import Json

DEPLOY = Path(__file__).parents[3] / "deploy"
SOME = "--cloud-provider=simulated"
OWN = "--use-service-account-credentials"
ROLES = ("Role", "ClusterRole")


def rules(text: str) -> list[Json]:
    return [rule for role in objects(text, *ROLES) for rule in role["rules"]]


def granted(text: str) -> set[tuple[str, str]]:
    """Verb and resource, whoever has it."""
    return {(v, r) for rule in rules(text) for v in rule["verbs"] for r in rule["resources"]}


def names(text: str, kind: str) -> set[str]:
    return {body["metadata"]["name"] for body in objects(text, kind)}


def pod(text: str) -> Json:
    (workload,) = objects(text, "DaemonSet", "Deployment")
    spec: Json = workload["spec"]["template"]["spec"]
    return spec


def container(text: str) -> Json:
    (found,) = pod(text)["containers"]
    body: Json = found
    return body


@pytest.mark.parametrize("name", ["daemonset.yaml", "deployment.yaml"])
def test_a_shipped_manifest_is_what_the_command_in_its_first_line_prints(name: str) -> None:
    shipped = (DEPLOY / name).read_text()
    head, _ = shipped.split("\n", 1)
    _, command, *arguments = shlex.split(head.removeprefix("# Rendered by: "))
    assert command == "manifests"
    assert rendered(*arguments) == shipped, f"do: {head[15:]} > deploy/{name}"


def test_the_image_is_the_one_that_the_manifests_run() -> None:
    assert container(rendered(SOME))["image"] == f"{NAME}:{__version__}"
    assert CONFIG["User"] == f"{USER}:{USER}"


@pytest.mark.parametrize("own", [[], [OWN]], ids=["one-account", "account-each"])
def test_no_rule_is_about_everything_or_about_secrets(own: list[str]) -> None:
    for rule in rules(rendered(SOME, *own)):
        words = [word for values in rule.values() for word in values]
        assert not {"*", "secrets", "pods", "impersonate", "escalate", "bind"} & {*words}


@pytest.mark.parametrize(
    ("controllers", "accounts", "verbs_on_nodes"),
    [
        ("cloud-node", {"node"}, {"list", "watch", "patch"}),
        ("cloud-node-lifecycle", {"node"}, {"list", "watch", "patch", "delete"}),
        ("route", {"route"}, {"list", "watch"}),
        ("service", {"service"}, {"list", "watch"}),
        ("volume-label", {"volume_label"}, {"list", "watch"}),
        ("*,-cloud-node-lifecycle", {*ACCOUNTS}, {"list", "watch", "patch"}),
        ("tagging", {"tagging"}, {"list", "watch"}),
    ],
)
def test_only_what_runs_has_an_account_and_rights(
    controllers: str, accounts: set[str], verbs_on_nodes: set[str]
) -> None:
    text = rendered("--cloud-provider=aws", OWN, f"--controllers={controllers}")
    expected = {account_name(controller) for controller in accounts}
    assert names(text, "ServiceAccount") == expected | {"ccm-supervisor"}
    (tokens,) = (rule for rule in rules(text) if "serviceaccounts/token" in rule["resources"])
    assert {*tokens["resourceNames"]} == expected
    assert {verb for verb, resource in granted(text) if resource == "nodes"} == verbs_on_nodes


def test_one_account_may_do_what_all_may_do_together_and_needs_no_tokens() -> None:
    one, each = granted(rendered(SOME)), granted(rendered(SOME, OWN))
    assert each - one == {("create", "serviceaccounts/token")}
    assert one <= each
    assert names(rendered(SOME), "ServiceAccount") == {"ccm-supervisor"}


def test_a_right_in_one_namespace_that_holds_in_all_is_not_granted_again() -> None:
    roles = objects(rendered(SOME), *ROLES)
    tellers = [
        role["kind"]
        for role in roles
        if ["events"] in [rule["resources"] for rule in role["rules"]]
    ]
    assert tellers == ["ClusterRole"]


def test_what_is_not_used_is_not_granted() -> None:
    assert "leases" not in rendered(SOME, "--leader-elect=false")
    silent = rendered(SOME, "--secure-port=0")
    assert "auth-delegator" not in silent
    assert "livenessProbe" not in container(silent)
    text = rendered(SOME, "--authentication-skip-lookup")
    assert "auth-delegator" in text
    assert "extension-apiserver-authentication-reader" not in text


def test_both_leases_of_a_leader_migration_are_granted() -> None:
    text = rendered(SOME, "--enable-leader-migration", "--leader-elect-resource-name=main")
    (lease,) = (
        rule for rule in rules(text) if "leases" in rule["resources"] and "resourceNames" in rule
    )
    assert lease["resourceNames"] == ["main", "cloud-provider-extraction-migration"]


def test_accounts_of_workers_stay_where_upstream_has_them() -> None:
    text = rendered("--namespace=clouds", SOME, OWN)
    where = {
        body["metadata"]["name"]: body["metadata"]["namespace"]
        for body in objects(text, "ServiceAccount", "DaemonSet")
    }
    assert where.pop("ccm-supervisor") == "clouds"
    assert {*where.values()} == {"kube-system"}


def test_the_pod_has_no_more_than_it_needs() -> None:
    spec = pod(rendered(SOME))
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container(rendered(SOME))["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert [volume["name"] for volume in spec["volumes"]] == ["run"]
    assert container(rendered(SOME))["volumeMounts"] == [{"name": "run", "mountPath": RUN}]


def test_flags_reach_the_pod_wherever_they_were_written(tmp_path: Path) -> None:
    config = tmp_path / "flags.yaml"
    config.write_text("cluster-name: mine\n")
    text = rendered("--cloud-provider", "simulated", f"--config={config}", "-v4")
    args = container(text)["args"]
    assert args == ["--cloud-provider=simulated", "--cluster-name=mine", "--v=4"]


def test_the_cloud_configuration_is_mounted_from_a_secret() -> None:
    text = rendered("--cloud-config-secret=aws", SOME, "--cloud-config=/etc/cloud/cloud.conf")
    assert {"name": "cloud-config", "secret": {"secretName": "aws"}} in pod(text)["volumes"]
    mount = {"name": "cloud-config", "mountPath": "/etc/cloud", "readOnly": True}
    assert mount in container(text)["volumeMounts"]


@pytest.mark.parametrize("path", ["/etc/cloud.conf", "cloud.conf", "/cloud.conf"])
def test_a_secret_is_not_mounted_over_what_the_image_needs(path: str) -> None:
    result = CliRunner().invoke(main, ["manifests", SOME, f"--cloud-config={path}"])
    assert result.exit_code == ExitCode.CONFIGURATION
    assert "/etc/cloud/cloud.conf" in result.output


@pytest.mark.parametrize(
    ("given", "selector"),
    [
        ([], {CONTROL_PLANE: ""}),
        (
            [f"--node-selector={CONTROL_PLANE}=true,disk=ssd"],
            {CONTROL_PLANE: "true", "disk": "ssd"},
        ),
        (["--node-selector="], {}),
    ],
    ids=["default", "given", "any"],
)
def test_pods_run_on_the_nodes_that_are_selected(given: list[str], selector: Json) -> None:
    """The value of the control plane's label is a distribution's choice."""
    assert pod(rendered(*given, SOME))["nodeSelector"] == selector


@pytest.mark.parametrize("text", ["disk", "=ssd", "a=b,"])
def test_a_selector_that_is_no_label_is_refused(text: str) -> None:
    result = CliRunner().invoke(main, ["manifests", f"--node-selector={text}", SOME])
    assert result.exit_code == ExitCode.USAGE
    assert "is not KEY=VALUE" in result.output


@pytest.mark.parametrize(
    ("address", "host"), [("0.0.0.0", {}), ("::", {}), ("127.0.0.1", {"host": "127.0.0.1"})]
)
def test_probes_go_where_the_server_listens(address: str, host: Json) -> None:
    probe = container(rendered(SOME, f"--bind-address={address}"))["livenessProbe"]["httpGet"]
    assert probe == {**host, "path": "/livez", "port": 10258, "scheme": "HTTPS"}


@pytest.mark.parametrize(("replicas", "budgets"), [(1, 0), (3, 1)])
def test_a_deployment_of_several_keeps_all_but_one(replicas: int, budgets: int) -> None:
    text = rendered("--kind=deployment", f"--replicas={replicas}", SOME)
    (deployment,) = objects(text, "Deployment")
    assert deployment["spec"]["replicas"] == replicas
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    assert len(objects(text, "PodDisruptionBudget")) == budgets


def test_outside_of_the_cluster_there_are_rights_and_no_pods() -> None:
    alone, with_pods = rendered("--kind=none", SOME, OWN), rendered(SOME, OWN)
    assert not objects(alone, "DaemonSet", "Deployment", "PodDisruptionBudget")
    assert rules(alone) == rules(with_pods)


def test_the_table_of_rights_is_the_one_in_the_code() -> None:
    _, *reported = table_rows("permissions.md", "rights")
    accounts = subjects(Settings(use_service_account_credentials=True), "kube-system")
    assert reported == [row(each.name, right) for each in accounts for right in each.rules]


def row(account: str, right: PolicyRule) -> list[str]:
    resource = ".".join(filter(None, (right.resource, right.group)))
    target = " ".join(filter(None, (f"`{resource}`", ", ".join(right.names))))
    where = right.namespace or "the cluster"
    return [f"`{account}`", ", ".join(right.verbs), target, where, right.purpose]


def test_an_unknown_provider_is_refused() -> None:
    done = CliRunner().invoke(main, ["manifests", "--", "--cloud-provider=nimbus"])
    assert (done.exit_code, done.stdout) == (ExitCode.CONFIGURATION, "")
    assert "'nimbus' is not known" in done.stderr


def test_json_is_a_list_of_the_same_objects() -> None:
    shown = json.loads(rendered("-o", "json", "--", SOME))
    assert shown["kind"] == "List"
    assert shown["items"] == list(yaml.safe_load_all(rendered("--", SOME)))
