"""Every flag of upstream's is one of ours, with its default unless we say otherwise."""

import re
from pathlib import Path

import pytest

from ccm.settings import Flag, Origin, flags
from tests.edge_cases.rows import row
from tests.settings.upstream import DEFAULTS, DEPRECATED, OUR_DEFAULTS

ROOT = Path(__file__).parents[2]
FLAGS = {flag.name: flag for flag in flags()}
UPSTREAM = [pytest.param(FLAGS[name], id=name) for name in DEFAULTS if name in FLAGS]


def test_no_flag_is_missing_and_none_is_said_to_be_upstream_that_is_not() -> None:
    assert {f.name for f in FLAGS.values() if f.origin is not Origin.OURS} == DEFAULTS.keys()


@pytest.mark.parametrize("flag", UPSTREAM)
def test_a_default_is_upstreams_or_says_what_upstreams_is(flag: Flag) -> None:
    theirs = flag.kind.parse(DEFAULTS[flag.name])
    if flag.name in OUR_DEFAULTS:
        assert flag.default != theirs
        assert flag.theirs is not None
        assert flag.kind.parse(flag.theirs) == theirs
    else:
        assert (flag.default, flag.theirs) == (theirs, None)


@row("OP1")
def test_defaults_differ_only_where_it_is_said() -> None:
    differ = {
        name
        for name, text in DEFAULTS.items()
        if FLAGS[name].default != FLAGS[name].kind.parse(text)
    }
    assert differ == OUR_DEFAULTS


def test_what_upstream_deprecates_is_deprecated() -> None:
    assert {flag.name for flag in FLAGS.values() if flag.deprecated} == DEPRECATED


def _read_by_code() -> set[str]:
    """Names of settings that something outside the settings' own package reads."""
    code = [
        path.read_text()
        for folder in ("ccm", "workers")
        for path in (ROOT / folder).rglob("*.py")
        if "ccm/settings" not in str(path)
    ]
    return set(re.findall(r"settings\.(\w+)", "\n".join(code)))


READ_BY_SETTINGS = {"config", "enable_leader_migration", "leader_migration_config"}
ONE_VALUE_ONLY = {"leader_elect_resource_lock"}


def test_a_flag_has_an_effect_unless_it_says_that_it_has_none() -> None:
    read = _read_by_code() | READ_BY_SETTINGS | ONE_VALUE_ONLY
    idle = {flag.field for flag in FLAGS.values() if flag.origin is Origin.NO_EFFECT}
    assert {flag.field for flag in FLAGS.values()} - read == idle


def test_the_page_about_flags_is_the_one_that_the_code_makes() -> None:
    from ccm.settings.document import page

    assert (ROOT / "docs" / "flags.md").read_text() == page(), "run `make docs`"
