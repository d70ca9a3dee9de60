"""The pages for systemd are followed: their commands as they stand, from nothing to nothing."""

from pathlib import Path

from tests.docs.pages import DOCS, script
from tests.e2e.systemd.machine import ETC, Machine, use_flags
from tests.support.running import wait_for

PAGE = DOCS / "systemd.md"
GIVEN = {"KUBECONFIG": "/root/given/kubeconfig", "CLOUD-CONFIG": "/root/given/cloud.conf"}
ELSEWHERE = ("python3 -m venv", "/opt/ccm-supervisor/bin/pip", "rm -rf /opt/ccm-supervisor")
"""Those of tests/e2e/release/test_pages.py; and here that directory is what runs the tests."""


def commands(page: Path, heading: str, *beginnings: str) -> str:
    """Those under a heading that begin so."""
    text = script(page, heading)
    for word, path in GIVEN.items():
        text = text.replace(f" {word} ", f" {path} ")
    lines = text.replace("\\\n", " ").splitlines()
    return "\n".join(
        one for one in lines if one.startswith(beginnings or "") and not one.startswith(ELSEWHERE)
    )


def follow(machine: Machine, text: str) -> str:
    """What the commands print; each has to succeed."""
    assert text
    return machine.run("sh", "-euxc", f"cd /opt/source\n{text}")


def test_the_page_leads_from_nothing_to_a_service_and_back(booted: Machine) -> None:
    uninstall = "make -f /opt/source/systemd/install.mk uninstall-systemd"
    booted.run("sh", "-ec", f"mv {ETC} /root/given; {uninstall}")
    follow(booted, commands(PAGE, "Install", "make", "install"))
    use_flags(booted, "--cloud-provider=simulated")
    follow(booted, commands(PAGE, "Install", "systemctl"))
    wait_for("it leads", lambda: "holds the lease" in booted.show("StatusText"))

    assert ": is leader" in follow(booted, commands(PAGE, "Look"))
    journal = commands(DOCS / "logs.md", "", "journalctl")
    wait_for("it is in the journal", lambda: "controller left out" in follow(booted, journal))
    follow(booted, commands(PAGE, "Configure", "install -m", "systemctl reload"))

    was = booted.show("MainPID")
    follow(booted, commands(PAGE, "Upgrade, and remove", "make install", "systemctl restart"))
    assert booted.show("MainPID") not in ("0", was)
    assert booted.show("ActiveState") == "active"

    follow(booted, commands(PAGE, "Upgrade, and remove", "systemctl disable", "make uninstall"))
    assert booted.show("LoadState") == "not-found"
    left = ["ccm-supervisor.env", "cloud.conf", "kubeconfig"]
    assert booted.run("ls", ETC).split() == left
