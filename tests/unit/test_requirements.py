"""The pinned dependencies are what setup.cfg asks for, and each file has its hash."""

import re
from configparser import ConfigParser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PIN = re.compile(r"^([a-z0-9][a-z0-9._-]*)(?:\[.*\])?==([^ ;\\]+)", re.M)


def pins(name: str) -> dict[str, str]:
    """Version of each pinned distribution of this file."""
    return dict(PIN.findall((ROOT / "requirements" / f"{name}.txt").read_text()))


def asked_for(*extras: str) -> list[Requirement]:
    """What setup.cfg installs with these extras, those that they include left out."""
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    texts = [config["options"]["install_requires"]]
    texts += [config.get("options.extras_require", extra, raw=True) for extra in extras]
    lines = (line.strip() for text in texts for line in text.splitlines())
    return [Requirement(line) for line in lines if line and line[0] not in "#%"]


@pytest.mark.parametrize("name", ["dev", "all"])
def test_the_pins_are_within_what_the_package_asks_for(name: str) -> None:
    extras = ("dev", "testkit", "aws") if name == "dev" else ("all", "aws")
    pinned = pins(name)
    for requirement in asked_for(*extras):
        version = pinned.get(canonicalize_name(requirement.name), "0")
        assert version in requirement.specifier, f"{requirement} is not pinned: `make lock`"


@pytest.mark.parametrize("name", ["build", "dev", "all", "mutants", "release", "uv"])
def test_every_pin_has_a_hash(name: str) -> None:
    blocks = re.split(r"\n(?=\S)", (ROOT / "requirements" / f"{name}.txt").read_text())
    assert [b for b in blocks if not b.startswith("#") and "--hash=sha256:" not in b] == []


def test_the_image_holds_what_was_tested() -> None:
    tested = pins("dev")
    assert {name: tested.get(name) for name in pins("all")} == pins("all")
