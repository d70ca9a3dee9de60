"""What pages say can be followed: links lead somewhere, commands exist, alerts are explained."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from ccm.cli.main import main
from ccm.cli.start import start
from ccm.decide.children import TABLE, WorkerEvent, WorkerState
from ccm.settings import flags, read_arguments
from tests.docs.pages import DOCS, PAGES, PROGRAMS, ROOT, Page, table_rows

COMMANDS = dict(zip(PROGRAMS, (main, start), strict=True))
FLAGS_OF_START = ("words", "flags", "start_flags")
"""Under which names commands take the flags of `start`; they are read by `ccm.settings`."""

OTHERS = {
    "--allocate-node-cidrs",
    "--cluster-id",
    "--hostname-override",
    "--kubelet-preferred-address-types",
    "--name",
    "--node-ip",
    "--provider-id",
}
"""Flags of Kubernetes' components and of our modules, and how any flag is written."""


def page_name(path: Path) -> str:
    return str(path.relative_to(ROOT))


every_page = pytest.mark.parametrize("page", [*map(Page.read, PAGES)], ids=[*map(page_name, PAGES)])


@every_page
def test_every_link_leads_to_a_file_and_a_heading_that_are_there(page: Page) -> None:
    assert [link for link in page.links if not _leads_somewhere(page.path, link)] == []


def _leads_somewhere(source: Path, link: str) -> bool:
    if ":" in link:
        return True  # elsewhere in the world
    name, _, wanted = link.partition("#")
    target = (source.parent / name).resolve() if name else source
    if not target.is_relative_to(ROOT) or not target.exists():
        return False
    return not wanted or wanted in Page.read(target).anchors


@every_page
def test_every_command_can_be_given_as_it_stands_there(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[click.Context] = []
    monkeypatch.setattr(click.Command, "invoke", lambda _, ctx: read.append(ctx))
    wrong = []
    for program, arguments in page.commands:
        read.clear()
        try:
            COMMANDS[program].main(arguments, program, standalone_mode=False)
            wrong += [str(fault) for ctx in read for fault in _faults_of_flags(ctx)]
        except click.ClickException as fault:
            wrong.append(f"{' '.join([program, *arguments])}: {fault.format_message()}")
    assert wrong == []


def _faults_of_flags(ctx: click.Context) -> Iterator[Exception]:
    """Faults in the flags of `start` that a command was given, but for words like FLAGS."""
    for name in FLAGS_OF_START:
        words = [word for word in ctx.params.get(name) or () if not word.isupper()]
        if words[:1] == ["-o"]:  # of 'check', which reads its own option so
            del words[:2]
        yield from read_arguments(words).faults


@every_page
def test_every_flag_that_is_named_exists(page: Page) -> None:
    named = {found[0] for span in page.spans if (found := re.match(r"--[a-z][a-z0-9-]*", span))}
    assert named - {*_options(main), *(flag.label for flag in flags()), *OTHERS} == set()


def _options(command: click.Command) -> Iterator[str]:
    ctx = click.Context(command)
    for option in command.get_params(ctx):
        yield from option.opts
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            if below := command.get_command(ctx, name):
                yield from _options(below)


def test_every_alert_has_a_paragraph_where_it_points_and_no_other_is_told() -> None:
    groups = yaml.safe_load((ROOT / "deploy" / "alerts.yaml").read_text())["groups"]
    rules = {rule["alert"]: rule["annotations"] for group in groups for rule in group["rules"]}
    told = [one for one in Page.read(DOCS / "operations.md").headings if one.startswith("CCM")]
    assert sorted(told) == sorted(rules)
    urls = [annotations["runbook_url"] for annotations in rules.values()]
    assert [url for url in urls if not _leads_somewhere(ROOT / "README.md", url)] == []


def test_the_index_names_every_page() -> None:
    index = Page.read(DOCS / "README.md")
    linked = {(DOCS / link.partition("#")[0]).resolve() for link in index.links}
    assert {page_name(path) for path in PAGES[1:] if path != index.path} <= {
        page_name(path) for path in linked if path.is_relative_to(ROOT)
    }


def test_the_table_of_states_is_the_one_in_the_code() -> None:
    (_, *events), *states = table_rows("supervision.md", "states")
    told = {
        (WorkerState(state), WorkerEvent(event)): WorkerState(after)
        for state, *cells in states
        for event, after in zip(events, cells, strict=True)
        if after
    }
    assert told == TABLE
