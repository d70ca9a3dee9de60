"""A real Prometheus that scrapes as `docs/endpoints.md` says and has the shipped rules, hurried."""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from tests.support.needed import needed
from tests.support.running import Running, until, wait_for

ROOT = Path(__file__).parents[3]
ALERTS = ROOT / "deploy" / "alerts.yaml"

RANGE = 8
"""Seconds that a rule looks back instead of minutes or hours; a sample is taken each second."""
FOR = 6
"""Seconds for which an alert has to be true instead of minutes or a day.

Prometheus takes up new targets every five seconds: until then `CCMAbsent` is right.
"""


def example(word: str) -> str:
    """The example of `docs/endpoints.md` with this word in it."""
    page = (ROOT / "docs" / "endpoints.md").read_text()
    (found,) = (one for one in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if word in one)
    return str(found)


def hurried_rules() -> Any:
    """The shipped rules in the same words, but that nobody waits for minutes."""
    rules = yaml.safe_load(ALERTS.read_text())
    for rule in rules["groups"][0]["rules"]:
        rule["expr"] = re.sub(r"\[\d+[mh]\]", f"[{RANGE}s]", rule["expr"])
        rule["for"] = f"{FOR}s"
    return rules


def scrape_config(ports: Sequence[int], token_file: Path) -> Any:
    """The page's example, with addresses instead of a search for Pods."""
    config = yaml.safe_load(example("scrape_configs"))
    for job in config["scrape_configs"]:
        del job["kubernetes_sd_configs"]
        del job["relabel_configs"]
        job["static_configs"] = [{"targets": [f"127.0.0.1:{port}" for port in ports]}]
        job["authorization"]["credentials_file"] = str(token_file)
    return config


class Prometheus(Running):
    """`with Prometheus(directory, port, token) as prometheus: await prometheus.firing()`."""

    def __init__(self, directory: Path, port: int, token: str) -> None:
        program = shutil.which("prometheus")
        self._program = needed(program, "prometheus is not installed: apt-get install prometheus")
        token_file, rules = directory / "token", directory / "rules.yaml"
        token_file.write_text(token)
        rules.write_text(yaml.safe_dump(hurried_rules()))
        config = scrape_config([port], token_file) | {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules)],
        }
        file = directory / "prometheus.yaml"
        file.write_text(yaml.safe_dump(config))
        super().__init__(
            "prometheus",
            directory,
            [
                f"--config.file={file}",
                f"--storage.tsdb.path={directory / 'tsdb'}",
                "--web.listen-address=127.0.0.1:0",
            ],
        )
        self._port = wait_for("Prometheus listens", self._listens_at)

    def command(self, arguments: list[str]) -> list[str]:
        return [self._program, *arguments]

    def _listens_at(self) -> str | None:
        said = self.log.read_text()
        found = re.search(r"Listening on\S* address=127\.0\.0\.1:(\d+)", said)
        return found[1] if found and "Server is ready" in said else None

    async def get(self, path: str, **parameters: str) -> Any:
        """What its API has at a path below `/api/v1`."""
        url = f"http://127.0.0.1:{self._port}/api/v1/{path}"
        async with aiohttp.ClientSession() as session, session.get(url, params=parameters) as found:
            return (await found.json())["data"]

    async def scrapes(self) -> dict[str, str]:
        """Health of each target by its path."""
        targets = (await self.get("targets"))["activeTargets"]
        return {
            target["discoveredLabels"]["__metrics_path__"]: target["health"] for target in targets
        }

    async def firing(self) -> set[str]:
        """The names of the alerts that fire now."""
        alerts = (await self.get("alerts"))["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    async def ever_fired(self) -> set[str]:
        """The names of all that have fired since it runs."""
        query = 'count by (alertname) (max_over_time(ALERTS{alertstate="firing"}[1h]))'
        found = (await self.get("query", query=query))["result"]
        return {series["metric"]["alertname"] for series in found}

    async def fires(self, *alerts: str) -> None:
        """Wait until all of them fire."""

        async def fire() -> bool:
            return {*alerts} <= await self.firing()

        await until(f"{alerts} fire", fire)

    async def is_silent(self) -> None:
        """Wait until nothing fires any more."""

        async def silent() -> bool:
            return not await self.firing()

        await until("no alert fires", silent)
