"""Health checks in the API server's words, to the letter."""

import logging
from functools import partial

import pytest

from ccm.supervisor.https.endpoints import (
    HealthChecker,
    HealthEndpoints,
    HealthReport,
    HealthStatistics,
)


class Parts:
    """Checks whose state a test decides."""

    def __init__(self) -> None:
        self.wrong: dict[str, str] = {}
        self.names = ["ping", "bad"]

    def checks(self) -> list[HealthChecker]:
        return [HealthChecker(name, partial(self._look, name)) for name in self.names]

    def _look(self, name: str) -> str | None:
        return self.wrong.get(name) or None


@pytest.fixture
def parts() -> Parts:
    return Parts()


@pytest.fixture
def health(parts: Parts) -> HealthEndpoints:
    return HealthEndpoints({"livez": parts.checks, "readyz": parts.checks})


def test_all_is_well(health: HealthEndpoints) -> None:
    assert health.report("livez") == HealthReport(
        True, "[+]ping ok\n[+]bad ok\nlivez check passed\n"
    )


def test_one_check_fails_and_the_reason_is_withheld(
    parts: Parts, health: HealthEndpoints, caplog: pytest.LogCaptureFixture
) -> None:
    parts.wrong["bad"] = "this will fail"
    told = "[+]ping ok\n[-]bad failed: reason withheld\nreadyz check failed\n"
    assert health.report("readyz") == HealthReport(False, told)


@pytest.mark.parametrize(
    ("excluded", "told"),
    [
        (["bad"], "[+]ping ok\n[+]bad excluded: ok\nlivez check passed\n"),
        (["bad", "bad"], "[+]ping ok\n[+]bad excluded: ok\nlivez check passed\n"),
        (["ping", "bad"], "[+]ping excluded: ok\n[+]bad excluded: ok\nlivez check passed\n"),
    ],
)
def test_a_check_that_is_excluded_is_well(
    parts: Parts, health: HealthEndpoints, excluded: list[str], told: str
) -> None:
    parts.wrong["bad"] = "this will fail"
    assert health.report("livez", excluded) == HealthReport(True, told)


def test_excluding_what_is_not_there_is_told(health: HealthEndpoints) -> None:
    assert health.report("livez", ["x", "y"]).text == (
        "[+]ping ok\n[+]bad ok\n"
        'warn: some health checks cannot be excluded: no matches for "x", "y"\n'
        "livez check passed\n"
    )


def test_one_check_alone_tells_its_reason(parts: Parts, health: HealthEndpoints) -> None:
    parts.wrong["bad"] = "this will fail"
    assert health.report_one("livez", "ping") == HealthReport(True, "ok")
    assert health.report_one("livez", "bad") == HealthReport(
        False, "internal server error: this will fail\n"
    )
    assert health.report_one("livez", "other") is None


def test_a_change_is_logged_once_with_its_reason(
    parts: Parts, health: HealthEndpoints, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for why in ("", "it is late", "it is later", ""):
        parts.wrong["bad"] = why
        for _ in range(3):
            health.report("livez")
    told = [
        (record.levelname, record.message, vars(record).get("why")) for record in caplog.records
    ]
    assert told == [
        ("WARNING", "health check failed", "it is late"),
        ("INFO", "health check recovered", None),
    ]


def test_looks_are_counted_until_they_are_forgotten(parts: Parts, health: HealthEndpoints) -> None:
    health.report("livez")
    parts.wrong["bad"] = "late"
    health.report("livez")
    health.report("livez", ["bad"])
    assert list(health.statistics()) == [
        ("livez", "bad", HealthStatistics(1, 1, "late")),
        ("livez", "ping", HealthStatistics(3, 0)),
    ]
    health.reset()
    assert list(health.statistics()) == []


def test_checks_are_asked_for_anew_each_time(parts: Parts, health: HealthEndpoints) -> None:
    parts.names.append("node-1")
    assert "[+]node-1 ok" in health.report("livez").text
