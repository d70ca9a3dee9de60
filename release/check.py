"""Whether what was made may be published."""

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

from ccm import __version__
from release.chart import made_files
from release.tree import ROOT, ReleaseError, last_release, run

SUMS = "SHA256SUMS"
KINDS = ("*.tar.gz", "*.whl", "*.tgz", "*.oci.tar", "*.cdx.json")
"""Of all that is published: each has to be there."""


def faults(out: Path) -> Iterator[str]:
    """What is wrong with the files below `out`, in words that say what to do."""
    version, _ = last_release()
    if version != __version__:
        yield f"CHANGELOG.md: the newest release is {version}, the version {__version__}"
    for path, text in made_files():
        if path.read_text() != text:
            yield f"{path.relative_to(ROOT)} does not follow from the code: make chart"
    for kind in KINDS:
        if not [*out.glob(kind)]:
            yield f"no {kind} was made"
    packages = [*out.glob("*.tar.gz"), *out.glob("*.whl")]
    try:
        run(sys.executable, "-m", "twine", "check", "--strict", *packages)
    except ReleaseError as error:
        yield f"twine check: {error}"
    for path in out.glob("*.cdx.json"):
        if problem := invalid_bill(path.read_text()):
            yield f"{path.name}: {problem}"


def invalid_bill(text: str) -> str:
    """What CycloneDX does not allow in a bill of materials; empty when it is valid."""
    from cyclonedx.schema import SchemaVersion  # of the extra `release`
    from cyclonedx.validation.json import JsonStrictValidator

    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    return str(error or "")


def write_sums(out: Path) -> Path:
    """The hashes of all that is published, which is what is signed."""
    paths = sorted(path for kind in KINDS for path in out.glob(kind))
    lines = (f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in paths)
    (out / SUMS).write_text("".join(lines))
    return out / SUMS
