"""The shipped Grafana dashboard: well-formed, and every query is one that Prometheus takes."""

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import yaml

from tests.https.promql import metrics_in, promtool, served

FILE = Path(__file__).parents[2] / "deploy" / "dashboard.json"
DASHBOARD: dict[str, Any] = json.loads(FILE.read_text())
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
