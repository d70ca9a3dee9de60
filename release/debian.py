"""Packages of Debian, each by its version and hash, without installing anything on this host."""

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from release.tree import REQUIREMENTS, ReleaseError, run

SUITE = "trixie"
PYTHON = "3.13"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
WANTED = (
    "base-files", "ca-certificates", "libbz2-1.0", "libc6", "libexpat1", "libffi8", "libgcc-s1",
    "liblzma5", f"libpython{PYTHON}-minimal", f"libpython{PYTHON}-stdlib", "libssl3t64",
    "libstdc++6", "libuuid1", "libzstd1", f"python{PYTHON}-minimal", "zlib1g",
)  # fmt: skip
"""Python, what it and the libraries link with, and the certificates of public CAs."""

PLATFORMS = {"amd64": "x86_64", "arm64": "aarch64"}
"""Architecture in Debian's words → in the words of Python's wheels."""

MIRRORS = {"Debian": "DEBIAN_MIRROR", "Debian-Security": "DEBIAN_SECURITY_MIRROR"}
"""Label of an archive → variable with its address, which otherwise is this host's own."""


@dataclass(frozen=True, slots=True)
class DebianPackage:
    """One package as it is pinned."""

    name: str
    version: str
    sha256: str


def host_architecture() -> str:
    """This host's, in Debian's words."""
    return run("dpkg", "--print-architecture").strip()


def lock_file(architecture: str) -> Path:
    return REQUIREMENTS / f"debian-{architecture}.txt"


def pinned(architecture: str) -> list[DebianPackage]:
    """What the lock file has."""
    path = lock_file(architecture)
    if not path.exists():
        raise ReleaseError(f"{path} is not there: use {' or '.join(PLATFORMS)}")
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return [DebianPackage(*line.split()) for line in lines]


def lock(directory: Path, architecture: str) -> str:
    """The lock file's content for the newest versions."""
    apt = _apt(directory, architecture)
    lines = []
    for line in run(*apt, "download", "--print-uris", *WANTED).splitlines():
        _, file, _, digest = line.split()
        name, version, _ = file.split("_")
        lines.append(f"{name} {version.replace('%3a', ':')} {digest.removeprefix('SHA256:')}\n")
    return f"# Packages of Debian {SUITE} in the image, by `make lock`.\n{''.join(sorted(lines))}"


def download(
    packages: Sequence[DebianPackage], directory: Path, architecture: str
) -> Iterator[Path]:
    """The pinned packages as files."""
    wanted = [f"{package.name}={package.version}" for package in packages]
    try:
        run("env", f"--chdir={directory}", *_apt(directory, architecture), "download", *wanted)
    except ReleaseError as error:
        raise ReleaseError("a pinned version is not served any more: `make lock`") from error
    for package in packages:
        (path,) = directory.glob(f"{package.name}_*.deb")
        if hashlib.sha256(path.read_bytes()).hexdigest() != package.sha256:
            raise ReleaseError(f"{path.name} is not what {lock_file(architecture).name} pins")
        yield path


def _apt(directory: Path, architecture: str) -> tuple[str, ...]:
    """The apt of this host, with lists and configuration of its own."""
    for name in ("lists/partial", "archives/partial"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    (directory / "status").touch()
    sources = directory / "sources.list"
    sources.write_text("".join(_sources()))
    options = {
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "Dir::Etc::SourceList": sources,
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State": directory,
        "Dir::State::status": directory / "status",
        "Dir::Cache": directory,
        "Acquire::Languages": "none",
        "Acquire::Check-Valid-Until": "false",  # of snapshots
        "APT::Sandbox::User": "root",
    }
    apt = ("apt-get", "-qq", *(f"-o{name}={value}" for name, value in options.items()))
    if not any((directory / "lists").glob("*InRelease")):
        run(*apt, "update")
    return apt


def _sources() -> Iterator[str]:
    addresses = {label: os.environ.get(name, "") for label, name in MIRRORS.items()}
    targets = ("indextargets", "--format", "$(LABEL) $(REPO_URI)", "Created-By: Packages")
    for label, address in re.findall(r"^(\S+) (\S+)$", run("apt-get", *targets), re.MULTILINE):
        if label in addresses:
            addresses[label] = addresses[label] or address
    if missing := [MIRRORS[label] for label, address in addresses.items() if not address]:
        raise ReleaseError(f"this host has no archive of Debian: set {' and '.join(missing)}")
    main, security = addresses.values()
    for address, suite in (
        (main, SUITE),
        (main, f"{SUITE}-updates"),
        (security, f"{SUITE}-security"),
    ):
        yield f"deb [signed-by={KEYRING}] {address} {suite} main\n"
