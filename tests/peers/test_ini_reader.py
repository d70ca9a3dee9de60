"""INI as Go's gcfg reads it: the same texts through both readers."""

import codecs
from dataclasses import dataclass, fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.cloud.config_file import boolean, whole_number
from ccm.cloud.sections import Sections, setting
from ccm.durations import parse_duration
from ccm.errors import ConfigurationFaults
from ccm.model.objects import Json
from tests.peers.config_readers import GoReaders


@dataclass(frozen=True, slots=True)
class GlobalSection:
    """One key of each type."""

    text: str = ""
    is_on: bool = setting(False, (boolean, "give true or false"))
    item: tuple[str, ...] = ()
    count: int = setting(0, whole_number(0, 10**9))
    wait_time: float = setting(0.0, (parse_duration, "give a duration"))


@dataclass(frozen=True, slots=True)
class NamedSection(GlobalSection):
    """The same in sections with names."""


SECTIONS = {"Global": GlobalSection, "Named": NamedSection}
GLOBAL = "[Global]\n"

BLANK = "a blank value is as none, where gcfg fails: templates leave values blank"
MARK = "a byte order mark is passed over, as gcfg does with files but not with other readers"
SAME = ""


def ours(content: bytes) -> Json:
    """What the product reads; raises `ConfigurationFaults`."""
    sections = Sections(content, "", SECTIONS, named=("Named",), on_unknown=lambda *unknown: None)
    found = {
        "Global": plain(sections.read(GlobalSection)),
        "Named": {name: plain(one) for name, one in sections.read_named(NamedSection).items()},
    }
    sections.faults.check()
    return found


def plain(section: GlobalSection) -> Json:
    values = {one.name: getattr(section, one.name) for one in fields(section)}
    return {**values, "item": list(section.item)}


def theirs(answer: Json) -> Json:
    """gcfg's answer in the same form; Go counts nanoseconds, and has null for what is empty."""
    named = answer["Named"] or {}
    return {"Global": _values(answer["Global"]), "Named": {k: _values(v) for k, v in named.items()}}


def _values(values: Json) -> Json:
    items = [one for one in values["item"] or [] if one]
    return {**values, "item": items, "wait_time": values["wait_time"]["Duration"] / 1e9}


def difference(go: GoReaders, content: bytes) -> str:
    """Why both may differ in this text; empty if they do not."""
    error, answer = go.read("gcfg", content)
    try:
        found = ours(content)
    except ConfigurationFaults:
        found = {}
    if not found:
        assert error, "we refuse what gcfg takes"
        return SAME
    if content.startswith(codecs.BOM_UTF8) and "U+FEFF" in error:
        return MARK
    if any(words in error for words in ('parse "" as', "parse bool ``", 'invalid duration ""')):
        return BLANK
    assert not error, f"we take what gcfg refuses: {error}"
    assert found == theirs(answer)
    return SAME


VALUES = [
    "a", "a b", "  a b  ", "a\t", '"a"', '"a" ', '"a  "', '" a"', '"a" b', '"a"b', 'a"b"',
    'a "b"', '"a""b"', '"a" "b"', '""', '"" a', 'a ""', '"', '"a', 'a"', '"a"b"', '\\"', 'a\\"b',
    '\\"a\\"', "\\", "a\\", "\\\\", "a\\\\b", "a\\b", "\\n", "a\\nb", '"a\\nb"', '"a\\tb"',
    '"a\\qb"', '"\\\\"', '"a\\\\"', '"a\\"', '"a\\"b"', '"CORP\\user"', "CORP\\user",
    '"CORP\\\\user"', "a\\\nb", "a\\\n b", "a \\\n b", "a\\\n", "a\\\n\n", "a\\\n;b",
    "a\\\nb\\\nc", "a\\\r\nb", '"a\\\nb"', '"a\nb"', "a\\ \nb", "a;b", "a#b", "a ; b", "a # b",
    '"a;b"', '"a#b"', '"a" ; b', '"a"; "b', "; a", "#", "a=b", "= a", "a==", "[a]", "a]", "a, b",
    "'a'", "'a", "$a", "${A}", "%a", "a:b", "a/b", "~", "null", "a\rb", "a\r", "\ra", '"a\rb"',
    '"a\r"', "a\0b", "\0", "ä", '"ä"', "日本", "a\x0bb", "a\x0cb", "a\u2028b", "a\x85b", "a\xa0",
    "\xa0a", "\ufeffa", "a\x1b[0m", "0123456", "1e3", "0x10", "true", "a" * 5000,
    '"' + "a" * 5000 + '"', '"' + "\\\\" * 500 + '"', "\\\n" * 50 + "a", '"a" # "b', "a \t \t b",
]  # fmt: skip
SWITCHES = [
    "true", "TRUE", "True", "tRuE", "yes", "Yes", "on", "ON", "1", "false", "no", "off", "0",
    '"true"', '"no"', "t", "f", "y", "n", "2", "enabled", "true false", "true ; c", "", '""',
    "-1", "01",
]  # fmt: skip
COUNTS = ["0", "1", "10", '"5"', "5 # c", "1.5", "five", "1 2", "", '""']
WAITS = [
    "5s",
    "1m30s",
    "1.5h",
    "100ms",
    "0",
    "-5s",
    '"5s"',
    "5",
    "s",
    "1d",
    "5 s",
    "",
    "1h 2m",
    "+1s",
]
SHAPES = [
    "", "\n", "\n\n\n", "# c", "; c\n", " # c\n", "\t; c", "# [Global]\n", "\r\n", "\r", " ",
    "\f\n", "[Global]", "[Global]\r\n", "[global]\ntext=a", "[GLOBAL]\nTEXT=a",
    " [Global]\n  text = a\n", "\t[Global]\n\ttext\t=\ta", "[ Global ]\ntext=a",
    "[Global ]\ntext=a", "[\tGlobal]\ntext=a", "[Global]text=a", "[Global] text=a",
    "[Global] # c\ntext=a", "[Global];c\ntext=a", "[Global]\rtext=a", "[Global\ntext=a",
    "Global]\ntext=a", "[]\ntext=a", "[ ]", "[[Global]]\ntext=a", "[Global]]", "[1a]",
    "[Global.x]\ntext=a", "[Global_x]\ntext=a", "[Global-x]\ntext=a", "[Glo bal]\ntext=a",
    "[Ünder]\na=b", '["Global"]\ntext=a', "text=a", "text=a\n[Global]", "text", "=a",
    "[Global]\n=a", "[Global]\n text", '[Named "a"]\ntext=b', '[Named "a"]',
    '[Named "a"]\n[Named "b"]\n', '[Named"a"]\ntext=b', "[Named]", '[Named   "a"  ]\ntext=b',
    '[Named ""]\ntext=b', '[Named "a]\ntext=b', "[Named a]\ntext=b", '[Named "',
    '[Named "a\\"b"]\ntext=b', '[Named "a\\\\b"]\ntext=b', '[Named "a\\nb"]\ntext=b',
    '[Named "a\nb"]', '[Named "a" "b"]\ntext=b', '[Named "a"b]', '[Named "a"]text=b',
    '[Named "a;b"]\ntext=b', '[Named "ä"]', '[Named "A"]\ntext=a\n[Named "a"]\ntext=b',
    '[Named "a"]\ntext=a\n[Named "a"]\ncount=2', '[Named"a""b"]', '[named "10.0.0.1"]\ntext=b',
    '[Named "2001:db8::1"]\ntext=b', '[Named "a"]\n[Global]\n[Named "a"]\nis-on',
    '[Named "a\rb"]\ntext=b', '[Named "a#b"]\n', "[Named 'a']\n", '[Named "a" ; c]\n',
    '[Named "a"] ; c\ntext=b', '[Global "a"]\ntext=b', '[Global "a"]', "[Other]\nx=y", "[Other]",
    '[Other "a"]\nx=y', "[Other]\nx=\\y", "[Other]\nx_y=z", "[Other]\nx y", '[Other]\nx="',
    "[Global]\nother=a", "[Global]\nother", "[Global]\nother=\\", "[Global]\ntext=a\ntext=b",
    "[Global]\ntext=a\n[Global]\ntext=b", "[Global]\ntext=a\n[Other]\n[Global]\n",
    "[Global]\ntext=a\ntext=", "[Global]\ntext=a\ntext", "[Global]\ntext\ntext=a",
    "[Global]\ntext ; c", "[Global]\nis-on", "[Global]\nis-on # c",
    "[Global]\nis-on=false\nis-on", "[Global]\nis-on\nis-on=no", "[Global]\nis-on=x\nis-on=yes",
    "[Global]\nis_on=yes", "[Global]\nis on=yes", "[Global]\nison=yes",
    "[Global]\nitem=a\nitem=b", "[Global]\nitem=a\nitem\nitem=b", "[Global]\nitem",
    "[Global]\nitem=a\nitem", "[Global]\nitem=a\nitem=\nitem=b", "[Global]\nitem=a,b",
    '[Global]\nitem="a", "b"', "[Global]\nItem=a\nitem=b", "[Global]\ncount",
    "[Global]\nwait-time", "[Global]\ntext: a", "[Global]\ntext:a=b", "[Global]\ntext a",
    "[Global]\ntext = a count = 2", "[Global]\n-text=a", "[Global]\nte-xt=a",
    "[Global]\n1text=a", "[Global]\ntext1=a", "[Global]\ntext.a=b", "[Global]\n\"text\"=a",
    "[Global]\ntext =\na", "[Global]\ntext\n=a", "[Global]\ntext\\\n=a", "[Global]\ntext = # c",
    "[Global]\ntext = ; \"", "[Global]\n# c \"\ntext=a", "[Global]\n; \\\ntext=a",
    "[Global]\n!text=a", "[Global]\n// c\ntext=a", "[Global]\ntext=a\n%", "[Global]\ntext=a\n}",
    "[Global]\ntext=a\r\n\r\ncount=1\r\n", "[Global]\ntext=\"a\"\r\n", "[Global]\rtext=a\r",
    "[Global]\n\rtext=a", "[Global]\ntext\r=a", "[Global]\ntäxt=a", "\ufeff[Global]\ntext=a",
    "\ufeff", "\ufeff\ufeff[Global]", "[Global]\n\ufefftext=a", "[Global]\n# \0", "<xml/>", "{}",
    '{"a": 1}', "a: b\n", "global:\n  text: a\n", "---\n", "[Global]\n---",
    "[Global] [Named \"a\"]", "[Global]\\\n",
]  # fmt: skip
TEXTS = [
    *(f"{GLOBAL}text = {value}\n" for value in VALUES),
    *(f"{GLOBAL}text={value}\ncount=1" for value in VALUES),
    *(f'[Named "x"]\nitem = {value}\nitem = z' for value in VALUES),
    *(f"{GLOBAL}is-on = {value}\n" for value in SWITCHES),
    *(f"{GLOBAL}count = {value}\n" for value in COUNTS),
    *(f"{GLOBAL}wait-time = {value}\n" for value in WAITS),
    *SHAPES,
]
NO_TEXTS = [
    b"\xff\xfe",
    b"[Global]\ntext=\xff",
    b"[Global]\n# \xc3\n",
    b"[\xe4]",
    b"[Global]\ntext=\xed\xa0\x80",
]


def test_both_read_the_same(go: GoReaders) -> None:
    found = {text: difference(go, text.encode()) for text in TEXTS}
    assert len(found) >= 300
    listed = {text: reason for text, reason in found.items() if reason}
    assert set(listed.values()) == {BLANK, MARK}
    assert len(listed) < 20


@pytest.mark.parametrize("content", NO_TEXTS)
def test_neither_reads_what_is_not_utf_8(go: GoReaders, content: bytes) -> None:
    error, _ = go.read("gcfg", content)
    assert error
    with pytest.raises(ConfigurationFaults, match="is not UTF-8; save the file as UTF-8"):
        ours(content)


PIECES = [
    "[Global]", "[Named", "[", "]", '"', "\\", "\n", "\r", " ", "\t", "=", ";", "#", "text",
    "is-on", "item", "count", "wait-time", "a", "n", "t", "1", "5s", "true", "no", "-", "_", ".",
    ":", "\\\n", '\\"', "\\\\", "\n[Global]\ntext=", '\n[Named "a"]\n', "\ntext = ", "\nitem=",
    "\nis-on", "ä", "\0",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=30))
def test_both_read_what_is_put_together(go: GoReaders, pieces: list[str]) -> None:
    difference(go, "".join(pieces).encode())
    difference(go, (GLOBAL + "".join(pieces)).encode())


@given(st.text(st.sampled_from('ab \t\r\n\\";#=nt[]'), max_size=20))
def test_both_read_any_value(go: GoReaders, value: str) -> None:
    difference(go, f"{GLOBAL}text = {value}\ncount = 1".encode())
    difference(go, f'{GLOBAL}item = "{value}"\n[Named "{value}"]\nis-on'.encode())
