"""YAML as Go's readers of these files take it: yaml.v2 of vSphere's, yaml.v3 of the others'."""

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccm.cloud.config_file import whole_number
from ccm.cloud.sections import setting
from ccm.cloud.yaml_file import YamlReader
from ccm.errors import ConfigurationFaults
from ccm.model.objects import Json
from ccm.providers.vsphere.config import camel
from tests.peers.config_readers import GoReaders


@dataclass(frozen=True, slots=True)
class Entry:
    """`global`, and an entry of `vcenter`."""

    user: str = ""
    password: str = ""
    server: str = ""
    port: int = setting(0, whole_number(0, 65535))
    insecure_flag: bool = False
    datacenters: tuple[str, ...] = setting((), separator=",")


@dataclass(frozen=True, slots=True)
class Labels:
    """`labels`."""

    zone: str = ""
    region: str = ""


@dataclass(frozen=True, slots=True)
class Features:
    """`features`."""

    provider: str = ""


@dataclass(frozen=True, slots=True)
class Addresses:
    """`features.network`."""

    mode: str = ""
    ipv6_support_disabled: bool = False


@dataclass(frozen=True, slots=True)
class Cluster:
    """An entry of `clusters`."""

    url: str = ""
    region: str = ""
    token_id: str = ""
    token_secret: str = ""
    insecure: bool = False


def vsphere(content: bytes) -> Json:
    reader = YamlReader("", camel, merges=True)
    root = reader.parse(content, "global")
    reader.check_keys(root, "", ("global", "vcenter", "labels"))
    entries = reader.mapping(root, "vcenter")
    found = {
        "global": read(reader, Entry, reader.mapping(root, "global")),
        "vcenter": {
            name: read(reader, Entry, reader.mapping(entries, name, "vcenter")) for name in entries
        },
        "labels": read(reader, Labels, reader.mapping(root, "labels")),
    }
    reader.faults.check()
    return found


def proxmox(content: bytes) -> Json:
    reader = YamlReader("")
    root = reader.parse(content, "clusters")
    reader.check_keys(root, "", ("features", "clusters"))
    features, clusters = reader.mapping(root, "features"), root.get("clusters") or []
    if not isinstance(clusters, list):
        reader.faults.add("clusters", "is not a list", "write one")
        clusters = []
    network = read(reader, Addresses, reader.mapping(features, "network", "features"))
    found = {
        "features": {**read(reader, Features, features, "network"), "network": network},
        "clusters": [read(reader, Cluster, reader.as_mapping(one, "clusters")) for one in clusters],
    }
    reader.faults.check()
    return found


def read(reader: YamlReader, kind: type, raw: object, *more: str) -> Json:
    found: Json = asdict(reader.read(kind, raw, "x", more))  # type: ignore[arg-type]
    if "insecure_flag" in found:
        found["insecureFlag"] = found.pop("insecure_flag")
        found["datacenters"] = list(found["datacenters"])
    return found


READERS = {"yaml2": vsphere, "yaml3": proxmox}


def plain(answer: Json) -> Json:
    """Go has null for what is empty, and texts that are blank in lists."""
    empty = asdict(Entry()) | {"insecureFlag": False, "datacenters": []}
    empty.pop("insecure_flag")
    for one in (answer.get("global"), *(answer.get("vcenter") or {}).values()):
        if one:
            one["datacenters"] = [item for item in one["datacenters"] or [] if item]
    if "vcenter" in answer:
        answer["vcenter"] = {k: v or empty for k, v in (answer["vcenter"] or {}).items()}
    if "clusters" in answer:
        answer["clusters"] = [one or asdict(Cluster()) for one in answer["clusters"] or []]
    return answer


TAKEN = {
    r"!(!str)?\w* `[^`]*` into (bool|uint)|!!int `[01]` into bool": "quotes have no effect",
    r"!!\w+ `[^`]*` into \[\]string": "a list may be one text with commas",
    r"!!(seq|map) into string": "of a key that stands twice the last value counts, and no other",
    "found (incompatible YAML document|unknown directive)": "a directive has no effect",
    r"into (main\.|map|\[\]|struct|\*struct)": "an empty text, list or mapping is as none",
}
"""Where we take what theirs refuses, by words of their error."""
REFUSED = {
    "is not a key of this file": "a key that is not known is a fault",
    "is '.*give 0 to 65535": "a number is written in decimal digits",
    "a key that is not a text": "a key is a text",
}
"""Where we refuse what theirs takes, by words of our fault."""
ODD = {
    r"[|>][-+0-9]*#": "a comment that touches what opens a block",
    r"!\S*[!:\t]": "a tag of one's own",
    r":[]},]": "a colon at the end of what is in brackets",
    r"[]}]\s*[^],}\s]": "what stands behind a bracket",
}
"""Where we do so by the syntax, with the line; by what is in the text."""


def difference(go: GoReaders, reader: str, text: str) -> str:
    """Why both may differ in this text; empty if they do not."""
    error, answer = go.read(reader, text.encode())
    try:
        found, faults = READERS[reader](text.encode()), ""
    except ConfigurationFaults as raised:
        found, faults = {}, str(raised)
    if error and faults:
        return ""
    if error:
        return reason(TAKEN, error)
    if "is not YAML" in faults:
        return reason(ODD, text)
    if faults:
        return reason(REFUSED, faults)
    assert found == plain(answer)
    return ""


def reason(reasons: dict[str, str], words: str) -> str:
    found = next((reasons[one] for one in reasons if re.search(one, words)), "")
    assert found, words
    return found


SCALARS = [
    "a", "a b", "0123456", "0o17", "0x1F", "0b11", "1_000", "1e3", "1.10", ".5", "-1", "+1",
    "12:30:45", "190:20:30", "2001-12-14", "2001-12-14T21:59:43Z", "no", "No", "NO", "yes", "on",
    "off", "y", "n", "true", "false", "TRUE", "null", "Null", "NULL", "~", "", ".inf", "-.INF",
    ".nan", "''", '""', "'~'", '"null"', "'123'", '"yes"', "'it''s'", "'a\\nb'", '"a\\nb"',
    '"a\\tb"', '"\\x41\\u00e4"', '"a\\qb"', '"a\\\\b"', "a\\b", '"a', "'a", 'a"b', "a'b", '"a"b',
    "a#b", "a #b", "'a #b'", "a: b", "a:b", "'a: b'", "a :b", ":a", ": a", "-", "- a", "-a",
    "--", "---", "...", "?", "? a", "?a", "!", "!a", "!a b", "!!str 12", "!!str",
    "!!binary aGk=", "!!binary ?", "&a b", "&a", "*a", "**", "@a", "`a`", "%a", "$a", "${A}",
    "a%", "a@b", "=", "=a", "<", "<<", ">", "|", "a|b", "[", "]", "{", "}", "[]", "{}", "[a]",
    "{a: b}", "a]", "a}", "a,b", ",a", "a, b", "(a)", "a;b", "a\\", "a/b", "ä", "日本", "😀",
    "a\tb", "\ta", "a\t", "a\u00a0b", "a\u2028b", "\ufeffa", "a\x01b", "a\x7fb", "a\x85b",
    "a\0b", "a" * 2000, "|\n    a\n    b", "|-\n    a\n    b\n", "|+\n    a\n\n",
    ">\n    a\n    b\n", ">-\n    a\n\n    b", "|2\n    a", "|\n  a", "\n    a",
    "\n    a\n    b", "a\n    b", "a\n\n    b", "a\n   b: c", '"a\n    b"', "'a\n\n    b'",
    "a # c", "a  # c", "# c", "\n    # c\n    a", "[a, b]", "[1, no, ~]", "[a, [b]]", "[a,]",
    "[,a]", "[a b]", "['a,b', c]", "\n    - a\n    - 1", "\n  - a\n  - no", "\n  - a\n - b",
    "[a, *b]", "[&b a, *b]", "443", "|# c\n    a", "0:}", "!:! a", '"443"', "0443", "443.0",
    "65536", "4_43", "true # c", "\"true\"", "'yes'", "1", "0", "2", "f", "False", "nope",
]  # fmt: skip
KEYS = {
    "yaml2": ("password", "port", "insecureFlag", "datacenters"),
    "yaml3": ("token_secret", "insecure"),
}
SHAPES = [
    "", "\n", "# c", "---", "---\n", "--- # c\n", "...", "~", "null", "a", "[]", "{}", "- a",
    "1", '""', "\ufeff", "\t", " ", "?", "GLOBAL:\n  user: a", "GLOBAL: {user: a}",
    "---\nGLOBAL: {user: a}", "GLOBAL: {user: a}\n...\n", "%YAML 1.1\n---\nGLOBAL: {user: a}",
    "%YAML 1.2\n---\nGLOBAL: {user: a}", "%YAML 2.0\n---\nGLOBAL: {user: a}",
    "%FOO\n---\nGLOBAL: {user: a}", "--- {GLOBAL: {user: a}}",
    "GLOBAL: {user: a}\n---\nGLOBAL: {user: b}", "GLOBAL: {user: a}\n---\n}",
    "\ufeffGLOBAL: {user: a}", "\ufeff# c\nGLOBAL:\n  user: a", "GLOBAL:\r\n  user: a\r\n",
    "GLOBAL:\r  user: a\r", "GLOBAL:\n\tuser: a", "GLOBAL:\n  user:\ta", "GLOBAL:\t\n  user: a",
    "GLOBAL: \n  user : a", "GLOBAL:\n  user: a\n server: b", "GLOBAL:\n  user: a\n   server: b",
    " GLOBAL:\n   user: a", " GLOBAL:\n   user: a\nLIST: ~", "GLOBAL\n  user: a",
    "GLOBAL:\n  user a", "GLOBAL:user: a", "GLOBAL: user: a", "GLOBAL:{user: a}",
    "{GLOBAL: {user: a}}", "{GLOBAL: {user: a}", "{GLOBAL: {user: a}}}", "{GLOBAL: {user:a}}",
    "{GLOBAL: {user: a,}}", "{GLOBAL: {,user: a}}", "{GLOBAL: {user: a server: b}}",
    "{GLOBAL: {user: a\n, server: b}}", '{"GLOBAL": {"user": "a"}}', '{"GLOBAL":{"user":"a"}}',
    "{'GLOBAL': {'user': 'a'}}", "\"GLOBAL\": {'user': a}", "? GLOBAL\n: user: a", "? GLOBAL",
    "GLOBAL: {user: a}\nGLOBAL: {server: b}", "GLOBAL: {user: a}\nGLOBAL: {user: b}",
    "GLOBAL: {user: a}\nGLOBAL: ~", "GLOBAL: ~\nGLOBAL: {user: a}", "GLOBAL: {user: a, user: b}",
    "GLOBAL: {user: [a], user: b}", "{}0:", "GLOBAL: {user: 0:}", "GLOBAL: {user: a, user: ~}",
    "GLOBAL:\n  user: a\n  'user': b", "GLOBAL:\n  user: a\n  # c\n  user: b",
    "GLOBAL: {user: a}\n\"GLOBAL\": {}", "GLOBAL: &x {user: a}\nNAMED: {y: *x}",
    "GLOBAL: &x {user: a}\nNAMED: {y: {<<: *x, server: b}}",
    "GLOBAL: &x {user: a}\nNAMED: {y: {server: b, <<: *x}}",
    "GLOBAL: &x {user: a}\nNAMED: {y: {user: b, <<: *x}}",
    "GLOBAL: &x {user: a}\nNAMED: {y: {<<: *x, user: b}}",
    "GLOBAL: &x {user: a}\nNAMED: {y: {<<: [*x], user: ~}}",
    "GLOBAL: &x {user: a}\nNAMED: {y: &z {user: b, server: c}, w: {<<: [*x, *z]}}",
    "GLOBAL: &x {user: a}\nNAMED: {y: {<<: x}}", "NAMED: {y: {<<: {user: a}}}",
    "GLOBAL: &x {user: a}\nNAMED: {y: {<<: *x, <<: *x}}",
    "GLOBAL: &x {user: a}\nNAMED: {y: {<<: ~}}", "GLOBAL: {user: &x a, server: *x}",
    "GLOBAL: {user: *x}", "GLOBAL: {user: *x, server: &x a}",
    "GLOBAL: {user: &x a, server: &x b, password: *x}", "GLOBAL: &x {user: *x}",
    "GLOBAL: &x\n  <<: *x", "GLOBAL: {'<<': {user: a}}",
    "GLOBAL: &x {user: a}\n<<: {GLOBAL: {user: b}}",
    "<<: {GLOBAL: {user: b}}\nGLOBAL: {server: a}", "GLOBAL: {&x user: a, server: *x }",
    "GLOBAL: {*x : a}", "*x : a", "NAMED: {a: {user: b}, a: {server: c}}",
    "NAMED: {a: {user: b}}\nNAMED: {a: {server: c}}",
    "NAMED: {a: {user: b}}\nNAMED: {c: {server: d}}", "NAMED: {a: ~}", "NAMED: {a: }",
    "NAMED:\n  a:\n  b:\n    user: c", "NAMED: {1: {user: a}}", "NAMED: {no: {user: a}}",
    "NAMED: {1.10: {user: a}}", "NAMED: {~: {user: a}}", "NAMED: {[a]: {user: b}}",
    "NAMED: {? [a] : b}", "NAMED: {2001:db8::1: {user: a}}", "NAMED: {'2001:db8::1': {user: a}}",
    "NAMED:\n  2001:db8::1:\n    user: a", "NAMED: {a b: {user: c}}", "NAMED: a", "NAMED: [a]",
    "NAMED: [{user: a}]", "GLOBAL: [a]", "GLOBAL: a", "GLOBAL: ''", "GLOBAL: []", "GLOBAL: {}",
    "GLOBAL:", "GLOBAL: ~", "GLOBAL: {user: {a: b}}", "GLOBAL: {user: [a]}",
    "GLOBAL: {user: []}", "GLOBAL: {user: {}}", "other: a", "GLOBAL: {other: a}",
    "GLOBAL: {User: a}", "Global: {user: a}", "GLOBAL: {user: a}\nother: [",
    "GLOBAL: {user: a} b", "GLOBAL: {user: a}\n}", "GLOBAL: {user: a}\n]",
    "GLOBAL: {user: a}\n  b", "GLOBAL: {user: a}\n- b", "GLOBAL:\n- user: a",
    "GLOBAL:\n  - user: a", "LIST: a", "LIST: []", "LIST: [~]", "LIST: [a]", "LIST: [[]]",
    "LIST: [{}]", "LIST:\n- url: a\n  region: b\n- url: c", "LIST:\n- url: a\n region: b",
    "LIST:\n  - url: a\n  - url: b", "LIST:\n-\n  url: a", "LIST:\n- - a",
    "LIST:\n- &x {url: a}\n- *x", "LIST:\n- &x {url: a}\n- {<<: *x, url: b}",
    "LIST:\n- url: a\n  url: b", "LIST: {url: a}", "LIST:\n- url: a\n\n\n- url: b",
    "LIST:\n- url: [a]", "LIST:\n- url: https://h:1/x?y#z", "LIST: [{url: https://h:1}]",
    "LIST: [{url: 'https://h:1', region: no}]", "LIST:\n- token_id: a@b!c",
    "LIST:\n- url: &x a\n  region: *x", "LIST", "LIST:\n- url: a # c\n  # c\n  region: b",
    "LIST:\n# c\n- url: a\n# c\n", "LIST:\n- url: a\n- : [", "LIST:\n- url: a\n  : [",
    "LIST: [{url: a}, ]", "LIST: [{url: a}", "LIST: {url: a}]",
]  # fmt: skip
NAMES = {
    "yaml2": {"GLOBAL": "global", "NAMED": "vcenter", "LIST": "labels"},
    "yaml3": {"GLOBAL": "features", "NAMED": "features", "LIST": "clusters"},
}


def texts(reader: str) -> Iterator[str]:
    names = NAMES[reader]
    for scalar in SCALARS:
        for key in KEYS[reader]:
            if reader == "yaml2":
                yield f"global:\n  {key}: {scalar}\n  server: z\n"
                yield f"vcenter: {{x: {{{key}: {scalar}, server: z}}}}"
            else:
                yield f"clusters:\n- region: z\n  {key}: {scalar}\n"
                yield f"clusters: [{{{key}: {scalar}, region: z}}]"
    for shape in SHAPES:
        for name, ours in names.items():
            shape = shape.replace(name, ours)
        yield (
            shape
            if reader == "yaml2"
            else shape.replace("user:", "provider:").replace("server:", "network:")
        )


@pytest.mark.parametrize("reader", ["yaml2", "yaml3"])
def test_both_read_the_same(go: GoReaders, reader: str) -> None:
    found = {text: difference(go, reader, text) for text in texts(reader)}
    assert len(found) >= 300
    assert sum(map(bool, found.values())) < len(found) / 4


def test_each_reason_has_a_text(go: GoReaders) -> None:
    found = {difference(go, reader, text) for reader in READERS for text in texts(reader)}
    assert found - {""} == {*TAKEN.values(), *REFUSED.values(), *ODD.values()}


PIECES = [
    "\n", "\n  ", "\n- ", "\n  - ", " ", "  ", ": ", ":", ", ", "- ", "{", "}", "[", "]", "#",
    " # c", "\t", "'", '"', "&x ", "*x", "<<: ", "|", ">", "!", "? ", "~", "a", "b", "1", "no",
    "---", "\nglobal:", "\nvcenter:", "\nclusters:", "user: ", "password: ", "port: ", "url: ",
    "region: ", "\n  user: a", "\n  port: 1", "\n  url: c",
]  # fmt: skip
STARTS = {
    "yaml2": ("", "global:\n  user: ", "global: {password: ", "vcenter:\n  x:\n    datacenters:"),
    "yaml3": (
        "",
        "features:\n  provider: ",
        "clusters: [{url: ",
        "clusters:\n- region: a\n  url: ",
    ),
}


@pytest.mark.parametrize("reader", ["yaml2", "yaml3"])
@settings(derandomize=True, max_examples=300)
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=12))
def test_both_read_what_is_put_together(go: GoReaders, reader: str, pieces: list[str]) -> None:
    for start in STARTS[reader]:
        difference(go, reader, start + "".join(pieces))


@pytest.mark.parametrize("reader", ["yaml2", "yaml3"])
@settings(derandomize=True, max_examples=300)
@given(value=st.text(st.sampled_from("ab01 \t\n:#-{}[]\"',&*!|>%@`?~=\\"), max_size=12))
def test_both_read_any_value(go: GoReaders, reader: str, value: str) -> None:
    for start in STARTS[reader]:
        difference(go, reader, start + value)
