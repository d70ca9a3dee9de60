"""The --cloud-config file and the provider that reads it: all faults are told at once."""

import re
from pathlib import Path
from typing import Any

import pytest

from ccm.cloud.interface import Quota
from ccm.errors import ConfigurationFaults
from ccm.providers.simulated.config import SimulatedConfig, read_config

WRONG_URLS = (
    "",
    "banana",
    "ftp://backend",
    "http://",
    "http://backend:port",
    "http://backend/?a=b",
)
MINIMAL = "[Global]\nurl = http://127.0.0.1:8080\ntoken = secret\n"


def faults(content: str | bytes) -> list[str]:
    with pytest.raises(ConfigurationFaults) as raised:
        read_config(content if isinstance(content, bytes) else content.encode(), "cloud.conf")
    return [str(fault) for fault in raised.value.faults]


@pytest.mark.parametrize(
    ("lines", "more"),
    [
        ("", {}),
        ("page-size = 50", {"page_size": 50}),
        ("read-rate = 2.5", {"read_quota": Quota(2.5, 5)}),
        ("write-rate = 0.2", {"write_quota": Quota(0.2, 1)}),
        ("timeout = 1m30s", {"timeout": 90}),
        ("timeout = 2.5", {"timeout": 2.5}),
        ("page-size =", {}),
        ("page-size = 50\n[Global]\npage-size = 60", {"page_size": 60}),
    ],
)
def test_the_url_and_a_token_are_enough_and_more_can_be_set(lines: str, more: Any) -> None:
    config = read_config(f"{MINIMAL}{lines}\n".encode(), "cloud.conf")
    assert config == SimulatedConfig("http://127.0.0.1:8080", "secret", **more)


def test_the_token_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("from-file\n")
    config = read_config(f"[Global]\nurl=https://cloud/\ntoken-file={file}\n".encode(), "")
    assert (config.url, config.token, config.token_file) == ("https://cloud", "", str(file))


def test_a_percent_sign_in_a_token_is_just_that() -> None:
    config = read_config(b"[Global]\nurl = http://a\ntoken = 100%s\n", "")
    assert config.token == "100%s"


def test_the_token_is_not_in_the_text_of_the_configuration() -> None:
    assert "secret" not in repr(read_config(MINIMAL.encode(), ""))


@pytest.mark.parametrize(
    ("line", "key", "words"),
    [
        ("page-size = 0", "page-size", "1 to 1000"),
        ("page-size = many", "page-size", "'many'"),
        ("read-rate = 0", "read-rate", "above 0"),
        ("read-rate = nan", "read-rate", "above 0"),
        ("write-rate = inf", "write-rate", "above 0"),
        ("timeout = soon", "timeout", "10s"),
        ("timeout = 0s", "timeout", "10s"),
        ("timeout = -3s", "timeout", "10s"),
        ("colour = red", "colour", "use one of url"),
    ],
)
def test_a_wrong_line_is_named_with_its_remedy(line: str, key: str, words: str) -> None:
    [fault] = faults(f"{MINIMAL}{line}\n")
    assert fault.startswith(f"cloud.conf:4 [Global] {key}: ")
    assert words in fault


@pytest.mark.parametrize(
    "content",
    [
        "[Global]\nurl = http://me:hunter2@backend\ntoken = t\n",
        "[Global]\nurl = http://backend\ntoken = hunter2 and more\n",
        "[Global]\nurl = http://backend\ntoken = hunter2\n  second-line\n",
        "[Global]\nurl = http://backend\ntoken = hunter2\ntoken-file = /nowhere\n",
    ],
)
def test_a_fault_never_shows_a_secret(content: str) -> None:
    assert "hunter2" not in "\n".join(faults(content))


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        *((f"url = {url}\ntoken = t", "url: ") for url in WRONG_URLS),
        ("token = t", "url: is missing"),
        ("url = http://backend", "token-file: is missing; set token or token-file"),
    ],
)
def test_what_is_needed_is_a_fault_when_it_is_wrong_or_missing(content: str, reported: str) -> None:
    [fault] = faults(f"[Global]\n{content}\n")
    assert re.match(rf"cloud.conf:[123] \[Global\] {reported}", fault)


@pytest.mark.parametrize(
    ("content", "word"), [(None, "No such file"), (b" \n", "empty"), (b"\xff", "not text")]
)
def test_a_token_file_without_a_token_is_a_fault(
    tmp_path: Path, content: bytes | None, word: str
) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    [fault] = faults(f"[Global]\nurl = http://backend\ntoken-file = {file}\n")
    assert fault.startswith("cloud.conf:3 [Global] token-file: ")
    assert word in fault


def test_all_faults_are_reported_at_once() -> None:
    found = faults(
        "[DEFAULT]\n[Globl]\n[Global]\ntoken = a\ntoken-file = b\npage-size = x\n"
        "read-rate = y\nwrite-rate = z\ntimeout = w\ncolour = red\n"
    )
    fields = {re.sub(r"cloud.conf:\d+ (\[Global\] )?", "", fault).split(": ")[0] for fault in found}
    keys = {"colour", "url", "token", "page-size", "read-rate", "write-rate", "timeout"}
    assert fields == {"[DEFAULT]", "[Globl]", *keys}


@pytest.mark.parametrize(
    "content",
    [
        "url = http://backend\n",
        "[Global\n",
        "[Global]\nnonsense: a\n",
        b"\xff\xfe",
    ],
)
def test_what_is_not_an_ini_file_is_one_fault_on_one_line(content: str | bytes) -> None:
    [fault] = faults(content)
    assert re.match("cloud.conf:[12]: (is|has) ", fault)
    assert "\n" not in fault
