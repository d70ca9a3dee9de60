"""What an image is made of, as CycloneDX: packages of Debian and distributions of Python."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5

import orjson

from ccm import __version__
from release.debian import SUITE, DebianPackage
from release.tree import NAME, epoch

DEBIAN_LICENSE = re.compile(r"^License: *(\S.*)$", re.MULTILINE)
"""The names of licences in a copyright file that machines can read."""

GCC_LIBRARIES = ("libgcc-s1", "libstdc++6")
GCC_LICENSE = "GPL-3.0-or-later WITH GCC-exception-3.1"

Json = dict[str, Any]


def bill_of_materials(
    digest: str, architecture: str, packages: list[DebianPackage], root: Path, site: str
) -> bytes:
    """Of the image with this digest and root; `site` is where its Python libraries are."""
    debian = (_debian(each, architecture, root) for each in packages)
    components = [*debian, *_libraries(root / site)]
    image = f"pkg:oci/{NAME}@{quote(digest, safe='')}?arch={architecture}"
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, digest)}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch(), UTC).isoformat(),
            "component": {
                **_component(NAME, __version__, image, "container"),
                "hashes": [{"alg": "SHA-256", "content": digest.removeprefix("sha256:")}],
            },
        },
        "components": components,
        "dependencies": [{"ref": image, "dependsOn": sorted(c["bom-ref"] for c in components)}],
    }
    return orjson.dumps(bill, option=orjson.OPT_INDENT_2)


def _component(name: str, version: str, purl: str, kind: str = "library") -> Json:
    return {"type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl}


def _debian(package: DebianPackage, architecture: str, root: Path) -> Json:
    where = f"?arch={architecture}&distro={SUITE}"
    purl = f"pkg:deb/debian/{quote(package.name)}@{quote(package.version)}{where}"
    hashes = [{"alg": "SHA-256", "content": package.sha256}]
    text = root / "usr/share/doc" / package.name / "copyright"
    names = DEBIAN_LICENSE.findall(text.read_text()) if text.exists() else []
    body = _component(package.name, package.version, purl)
    if package.name in GCC_LIBRARIES:  # whose text is in a package of the compiler
        return {**body, "hashes": hashes, "licenses": [{"expression": GCC_LICENSE}]}
    return {**body, "hashes": hashes, **_named_licenses(sorted({*names}))}


def _libraries(site: Path) -> Iterator[Json]:
    for found in sorted(distributions(path=[str(site)]), key=lambda each: each.name):
        body = _component(found.name, found.version, f"pkg:pypi/{found.name}@{found.version}")
        yield {**body, **_license(found)}


def _license(found: Distribution) -> Json:
    """An SPDX expression where there is one; older distributions have a name or classifiers."""
    fields = found.metadata
    if "License-Expression" in fields:
        return {"licenses": [{"expression": fields["License-Expression"]}]}
    classifiers = (each.rpartition(" :: ") for each in fields.get_all("Classifier") or ())
    names = [name for kind, _, name in classifiers if kind.startswith("License ::")]
    texts = fields.get_all("License") or ()
    return _named_licenses(names or [text for text in texts if text and "\n" not in text])


def _named_licenses(names: list[str]) -> Json:
    return {"licenses": [{"license": {"name": name}} for name in names]} if names else {}
