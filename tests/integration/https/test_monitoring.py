"""The shipped alert rules and dashboard: their metrics exist, and each alert fires."""

import json
import re
import shlex
import shutil
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from ccm.metrics import MetricType, catalogue
from tests.integration.https.prometheus import ALERTS, scrape_config
from tests.support.deadlines import timeout
from tests.support.needed import needed

MISSING = "promtool is not installed: apt-get install prometheus"
HISTOGRAM_PARTS = ("_bucket", "_count", "_sum")


def promtool(*arguments: str | Path) -> str:
    """What it says; fails when it complains."""
    program = needed(shutil.which("promtool"), MISSING)
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=timeout(), check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def metrics_in(expression: str) -> set[str]:
    """The names of the metrics, without those of labels, functions and keywords."""
    text = re.sub(r'"[^"]*"', "", expression)
    text = re.sub(r"\{[^}]*\}|\[[^]]*\]", " ", text)
    text = re.sub(r"\b(by|on|without|ignoring|group_left|group_right)\s*\([^)]*\)", " ", text)
    names = re.findall(r"[a-zA-Z_:][a-zA-Z0-9_:]*(?!\s*\(|[a-zA-Z0-9_:])", text)
    return {name for name in names if name not in {"and", "or", "unless", "bool", "offset"}}


def served() -> set[str]:
    """Every name that `/metrics` and `/metrics/slis` may show."""
    names: set[str] = set()
    for metric in catalogue():
        parts = HISTOGRAM_PARTS if metric.type is MetricType.HISTOGRAM else ("",)
        names |= {f"{metric.name}{part}" for part in parts}
    return names


RULES: list[dict[str, Any]] = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]

LEADS = {"ccm_info": "1", "ccm_permission_seconds": "9"}

WELL = {
    **LEADS,
    'kubernetes_healthcheck{name="progress",type="livez"}': "1",
    'ccm_worker_state{worker="node-0",state="running"}': "1",
    'ccm_worker_state{worker="node-0",state="backoff"}': "0",
    'ccm_worker_deaths_in_a_row{worker="node-0"}': "1",
    'workqueue_longest_running_processor_seconds{name="Nodes"}': "20",
    'ccm_keys_quarantined{controller="node"}': "0",
    'ccm_reconciles_total{controller="node",result="failed"}': "0+1",
    'ccm_reconciles_total{controller="node",result="success"}': "0+9",
    "ccm_nodes_oldest_uninitialized_seconds": "10",
    'ccm_node_initialization_seconds_bucket{le="1"}': "0+9",
    'ccm_node_initialization_seconds_bucket{le="+Inf"}': "0+9",
    "ccm_cloud_outage_seconds": "0",
    "ccm_node_deletions_on_hold": "0",
    "ccm_node_deletions_frozen": "0",
    "ccm_node_deletions_state_trouble": "0",
    "ccm_node_deletions_not_understood_total": "0",
    'ccm_cloud_request_duration_seconds_count{operation="x",result="ok"}': "0+9",
    'ccm_cloud_request_duration_seconds_count{operation="x",result="error"}': "0+1",
    'ccm_cloud_request_duration_seconds_count{operation="x",result="denied"}': "0",
    'ccm_cloud_budget_per_second{class="read"}': "8",
    'ccm_cloud_budget_full_per_second{class="read"}': "10",
    'ccm_cloud_oldest_wait_seconds{class="read"}': "5",
    'ccm_informer_trouble{kind="Node"}': "0",
    'ccm_informer_silent_seconds{kind="Node"}': "65",
    "ccm_informer_undecodable_total": "0",
    'ccm_delivery_queue_depth{worker="node-0"}': "0",
    'rest_client_requests_total{code="200"}': "0+9",
    'rest_client_requests_total{code="503"}': "0+1",
    "ccm_https_certificate_expiration_timestamp_seconds": "8640000",
    'ccm_https_reviews_total{kind="token",result="failed"}': "3",
}

ILL: dict[str, dict[str, str]] = {
    "CCMAbsent": {"ccm_info": ""},
    "CCMNoLeader": {"ccm_permission_seconds": "0"},
    "CCMTwoLeaders": {'ccm_permission_seconds{instance="b"}': "9"},
    "CCMUnhealthy": {'kubernetes_healthcheck{name="progress",type="livez"}': "0"},
    "CCMWorkerDown": {'ccm_worker_state{worker="node-0",state="failed"}': "1"},
    "CCMWorkerDies": {'ccm_worker_deaths_in_a_row{worker="node-0"}': "3"},
    "CCMKeyStuck": {'workqueue_longest_running_processor_seconds{name="Nodes"}': "700"},
    "CCMKeysQuarantined": {'ccm_keys_quarantined{controller="node"}': "1"},
    "CCMReconcilesFail": {'ccm_reconciles_total{controller="node",result="failed"}': "0+30"},
    "CCMNodesWait": {"ccm_nodes_oldest_uninitialized_seconds": "700"},
    "CCMNodesSlow": {
        'ccm_node_initialization_seconds_bucket{le="1"}': "0+1",
        'ccm_node_initialization_seconds_bucket{le="60"}': "0+9",
    },
    "CCMDeletionsHeld": {"ccm_node_deletions_on_hold": "1"},
    "CCMDeletionsFrozen": {"ccm_node_deletions_frozen": "1"},
    "CCMDeletionsBroken": {"ccm_node_deletions_state_trouble": "1"},
    "CCMCloudDenied": {
        'ccm_cloud_request_duration_seconds_count{operation="x",result="denied"}': "0+1"
    },
    "CCMCloudUnavailable": {"ccm_cloud_outage_seconds": "130"},
    "CCMCloudFails": {
        'ccm_cloud_request_duration_seconds_count{operation="x",result="error"}': "0+9"
    },
    "CCMCloudThrottled": {'ccm_cloud_budget_per_second{class="read"}': "3"},
    "CCMCloudCallsWait": {'ccm_cloud_oldest_wait_seconds{class="read"}': "130"},
    "CCMWatchBroken": {'ccm_informer_silent_seconds{kind="Node"}': "200"},
    "CCMObjectsSkipped": {"ccm_informer_undecodable_total": "0+1"},
    "CCMWorkerBehind": {'ccm_delivery_queue_depth{worker="node-0"}': "5"},
    "CCMApiFails": {'rest_client_requests_total{code="503"}': "0+9"},
    "CCMCertificateEnds": {"ccm_https_certificate_expiration_timestamp_seconds": "500000"},
    "CCMReviewsFail": {'ccm_https_reviews_total{kind="token",result="failed"}': "0+1"},
}
"""What is different from `WELL` when an alert has to fire."""


def series(values: dict[str, str], minutes: int) -> list[dict[str, str]]:
    """Each with the labels of one replica, a sample a minute."""
    return [
        {"series": labelled(name), "values": f"{value}x{minutes}"}
        for name, value in values.items()
        if value
    ]


def labelled(name: str) -> str:
    """With the labels of its target."""
    bare, _, labels = name.partition("{")
    target = 'job="ccm"' if "instance=" in labels else 'job="ccm",instance="a"'
    own = labels.rstrip("}")
    return f"{bare}{{{target}{',' if own else ''}{own}}}"


def case(values: dict[str, str], expected: set[str], hours: int = 2) -> dict[str, Any]:
    """What promtool has to find firing after some hours."""
    return {
        "interval": "1m",
        "input_series": series(values, hours * 60),
        "promql_expr_test": [firing(expected, f"{hours}h")],
    }


def firing(alerts: set[str], when: str) -> dict[str, Any]:
    """That these alerts fire at a time, and no other."""
    samples = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(alerts)]
    query = 'min by (alertname) (ALERTS{alertstate="firing"})'
    return {"expr": query, "eval_time": when, "exp_samples": samples}


CALM, AFTER = 60, 120  # minutes


def passing(alert: str, changes: dict[str, str]) -> dict[str, Any]:
    """A calm hour, then trouble, and at last nothing but what was there before."""
    trouble = (25 if alert == "CCMDeletionsFrozen" else 2) * 60
    values = dict.fromkeys(changes, "") | WELL
    spells = {
        name: history((good, CALM), (changes.get(name, good), trouble), (good, AFTER))
        for name, good in values.items()
    }
    return {
        "interval": "1m",
        "input_series": [
            {"series": labelled(name), "values": spell} for name, spell in spells.items()
        ],
        "promql_expr_test": [
            firing(set(), f"{CALM}m"),
            firing({alert}, f"{CALM + trouble - 1}m"),
            firing(set(), f"{CALM + trouble + AFTER - 1}m"),
        ],
    }


def history(*spells: tuple[str, int]) -> str:
    """Of values such as `1`, `0+9` (growth a minute; it goes on from where it is) or none."""
    parts, total = [], 0
    for value, minutes in spells:
        start, grows, growth = value.partition("+")
        if grows:
            parts.append(f"{total}+{growth}x{minutes - 1}")
            total += int(growth) * minutes
        else:
            constant = start if not total else str(total)
            parts.append(f"{constant}x{minutes - 1}" if value else f"_x{minutes}")
    return " ".join(parts)


def check(cases: list[dict[str, Any]], directory: Path) -> None:
    file = directory / "cases.yaml"
    tests = {"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": cases}
    file.write_text(yaml.safe_dump(tests))
    promtool("test", "rules", file)


def test_prometheus_takes_the_rules() -> None:
    assert f"{len(RULES)} rules found" in promtool("check", "rules", ALERTS)


def test_the_example_of_the_page_scrapes_health_as_well(tmp_path: Path) -> None:
    """Debian's Prometheus cannot search for Pods, so addresses stand in the place of that."""
    token = tmp_path / "token"
    token.touch()
    config = scrape_config([10258], token)
    file = tmp_path / "prometheus.yaml"
    file.write_text(yaml.safe_dump(config))
    promtool("check", "config", file)
    paths = {job.get("metrics_path", "/metrics") for job in config["scrape_configs"]}
    assert paths == {"/metrics", "/metrics/slis"}


def test_nothing_fires_while_all_is_well(tmp_path: Path) -> None:
    check([case(WELL, set())], tmp_path)


def test_every_alert_has_its_reason() -> None:
    assert ILL.keys() == {rule["alert"] for rule in RULES}


@pytest.mark.parametrize("alert", ILL)
def test_an_alert_fires_for_its_own_reason_alone_and_ends_with_it(
    alert: str, tmp_path: Path
) -> None:
    check([passing(alert, ILL[alert])], tmp_path)


def test_a_replica_that_stands_by_is_not_blamed(tmp_path: Path) -> None:
    stands_by = {"ccm_permission_seconds": "0", 'ccm_permission_seconds{instance="b"}': "9"}
    for alert in ("CCMNodesWait", "CCMCloudCallsWait"):
        check([case({**WELL, **stands_by, **ILL[alert]}, set())], tmp_path)


def test_the_command_of_the_page_makes_every_link_ones_own() -> None:
    page = (DASHBOARD_FILE.parents[1] / "docs" / "endpoints.md").read_text()
    (line,) = (line for line in page.splitlines() if line.startswith("    sed "))
    command, _, _ = line.strip().partition(" > ")
    done = subprocess.run(
        shlex.split(command), cwd=DASHBOARD_FILE.parents[1], capture_output=True, check=True
    )
    made = yaml.safe_load(done.stdout)["groups"][0]["rules"]
    links = [rule["annotations"]["runbook_url"] for rule in made]
    assert all(link.startswith("https://wiki.local/ccm/alerts.md#") for link in links)


def test_every_metric_in_a_rule_is_served() -> None:
    assert {name for rule in RULES for name in metrics_in(rule["expr"])} <= served()


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_a_rule_says_how_bad_it_is(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["annotations"]["summary"].endswith(".")


DASHBOARD_FILE = Path(__file__).parents[3] / "deploy" / "dashboard.json"
DASHBOARD: dict[str, Any] = json.loads(DASHBOARD_FILE.read_text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
QUERIES = [target["expr"] for panel in PANELS for target in panel.get("targets", [])]


def plain(query: str) -> str:
    """With what Grafana puts in for its variables."""
    return query.replace("$__rate_interval", "5m").replace("$job", "ccm")


def test_prometheus_takes_every_query(tmp_path: Path) -> None:
    rules = [{"record": f"query:{n}", "expr": plain(query)} for n, query in enumerate(QUERIES)]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(QUERIES)} rules found" in promtool("check", "rules", file)


def test_every_metric_in_a_query_is_served() -> None:
    assert {name for query in QUERIES for name in metrics_in(plain(query))} <= served()


def test_every_query_asks_for_the_chosen_jobs_only() -> None:
    for query in QUERIES:
        assert query.count("{") == query.count('{job=~"$job"') > 0, query


def test_every_panel_has_a_number_a_place_and_a_query_of_its_own() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    for panel in PANELS:
        assert panel["type"] == "row" or panel["targets"], panel["title"]
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
    for one, other in combinations((panel["gridPos"] for panel in PANELS), 2):
        is_beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        is_below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert is_beside or is_below, (one, other)


def test_the_data_source_is_chosen_in_grafana() -> None:
    used = {panel["datasource"]["uid"] for panel in PANELS if panel["type"] != "row"}
    assert used == {"${datasource}"}
    assert [variable["name"] for variable in DASHBOARD["templating"]["list"]] == [
        "datasource",
        "job",
    ]
