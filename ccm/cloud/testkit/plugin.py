"""The kit's command line for pytest; loaded in every run, so it does nothing without --provider."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ccm.cloud.testkit", "conformance of a cloud provider")
    group.addoption("--provider", metavar="NAME", help="The provider under test.")
    group.addoption(
        "--adapter",
        metavar="MODULE:NAME",
        help="What makes its ccm.cloud.testkit.adapter.Adapter: a class, or a function.",
    )


def pytest_configure(config: pytest.Config) -> None:
    name = config.getoption("--provider")
    if name:
        from ccm.cloud.testkit.report import Report

        config.pluginmanager.register(Report(name), "ccm.cloud.testkit.report")
