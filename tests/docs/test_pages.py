"""What pages say can be followed: links lead somewhere, commands exist, alerts are explained."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from ccm.cli.main import main
from ccm.decide.children import TABLE, WorkerEvent, WorkerState
from ccm.settings import flags
from tests.docs.calls import all_commands, wrong_calls
from tests.docs.pages import (
    DOCS,
    PAGES,
    PROGRAMS,
    ROOT,
    Page,
    leads_somewhere,
    page_name,
    table_rows,
)

OTHERS = {
    "--allocate-node-cidrs",
    "--certificate-expires-after",
    "--cluster-id",
    "--enable-admission-plugins",
    "--enable-cloud-provider",
    "--enable-k0s-cloud-provider",
    "--enable-worker",
    "--hostname-override",
    "--kubelet-preferred-address-types",
    "--name",
    "--node-ip",
    "--node-labels",
    "--provider-id",
    "--take-ownership",
}
"""Flags of Kubernetes' components and of our modules, and how any flag is written."""

RUN = {
    "ctr",  # tests/e2e/test_true_kubelets.py
    "curl", "export", "kubectl", "openssl",  # tests/e2e/test_followed.py
    "helm",  # tests/integration/chart/test_recipes.py
    "install", "journalctl", "systemctl",  # tests/e2e/systemd/test_followed.py
    "make", "pip", "python3", "pytest", "twine",  # tests/e2e/release, tests/integration/testkit
    "sed",  # tests/integration/https/test_monitoring.py
    "skopeo",  # tests/e2e/test_image.py
    "source",  # tests/docs/test_help.py
}  # fmt: skip
"""Others' programs, and what runs them as pages tell."""

NOT_RUN = {"cosign", "docker", "k0s", "kops", "podman", "rm", "systemd-run"}
"""Those that would need a registry, a cluster, a daemon or a bus; one removes an installation."""

GENERATED = {"annotations.md", "flags.md", "metrics.md"}
MAX_WORDS = 1500

every_page = pytest.mark.parametrize("page", [*map(Page.read, PAGES)], ids=[*map(page_name, PAGES)])


@every_page
def test_every_link_leads_to_a_file_and_a_heading_that_are_there(page: Page) -> None:
    assert [link for link in page.links if not leads_somewhere(page.path, link)] == []


@every_page
def test_every_command_can_be_given_as_it_stands_there(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert wrong_calls(page, monkeypatch) == []


@every_page
def test_every_program_is_one_that_tests_run_or_one_of_few(page: Page) -> None:
    assert {*page.programs} - {*PROGRAMS, *RUN, *NOT_RUN} == set()


@every_page
def test_every_target_is_one_of_the_makefile(page: Page) -> None:
    files = (ROOT / "Makefile", ROOT / "systemd" / "install.mk")
    targets = re.findall(r"^([a-z-]+):", "\n".join(map(Path.read_text, files)), re.MULTILINE)
    named = {
        word
        for text in (*page.code.splitlines(), *page.spans)
        for call in re.findall(r"^\W*make ([a-z -]+?)(?= *(?:$|#|[A-Z]+=))", text)
        for word in call.split()
    }
    assert named - {*targets} == set()


@every_page
def test_every_flag_that_is_named_exists(page: Page) -> None:
    named = {found[0] for span in page.spans if (found := re.match(r"--[a-z][a-z0-9-]*", span))}
    assert named - {*_options(), *(flag.label for flag in flags()), *OTHERS} == set()


@every_page
def test_a_page_is_read_in_one_sitting(page: Page) -> None:
    """Its words but for code; of a page whose tables are made from the code, those before them."""
    text = page.prose
    if page.path.name in GENERATED:
        text = text.partition("\n## ")[0]
    words = [word for word in text.split() if re.search(r"\w", word)]
    assert len(words) <= MAX_WORDS


def _options() -> Iterator[str]:
    root = click.Context(main, **main.context_settings)
    for ctx in (root, *all_commands(main, root)):
        for option in ctx.command.get_params(ctx):
            yield from (*option.opts, *option.secondary_opts)


def test_every_alert_has_a_paragraph_where_it_points_and_no_other_is_reported() -> None:
    groups = yaml.safe_load((ROOT / "deploy" / "alerts.yaml").read_text())["groups"]
    rules = {rule["alert"]: rule["annotations"] for group in groups for rule in group["rules"]}
    reported = [one for one in Page.read(DOCS / "alerts.md").headings if one.startswith("CCM")]
    assert sorted(reported) == sorted(rules)
    published = "https://ccm-supervisor.example/"
    for annotations in rules.values():
        assert (url := annotations["runbook_url"]).startswith(published)
        assert leads_somewhere(ROOT / "README.md", url.removeprefix(published)), url


def test_the_index_names_every_page() -> None:
    index = Page.read(DOCS / "README.md")
    linked = {(DOCS / link.partition("#")[0]).resolve() for link in index.links}
    assert {page_name(path) for path in PAGES if path not in (PAGES[0], index.path)} <= {
        page_name(path) for path in linked if path.is_relative_to(ROOT)
    }


def test_the_table_of_states_is_the_one_in_the_code() -> None:
    (_, *events), *states = table_rows("supervision.md", "states")
    reported = {
        (WorkerState(state), WorkerEvent(event)): WorkerState(after)
        for state, *cells in states
        for event, after in zip(events, cells, strict=True)
        if after
    }
    assert reported == TABLE
