"""What an image is made of, as CycloneDX: packages of Debian and distributions of Python."""

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

Json = dict[str, Any]


def bill_of_materials(
    digest: str, architecture: str, packages: list[DebianPackage], site: Path
) -> bytes:
    """Of the image with this digest; `site` is where its Python libraries are."""
    components = [*(_debian(each, architecture) for each in packages), *_libraries(site)]
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


def _debian(package: DebianPackage, architecture: str) -> Json:
    where = f"?arch={architecture}&distro={SUITE}"
    purl = f"pkg:deb/debian/{quote(package.name)}@{quote(package.version)}{where}"
    hashes = [{"alg": "SHA-256", "content": package.sha256}]
    return {**_component(package.name, package.version, purl), "hashes": hashes}


def _libraries(site: Path) -> Iterator[Json]:
    for found in sorted(distributions(path=[str(site)]), key=lambda each: each.name):
        body = _component(found.name, found.version, f"pkg:pypi/{found.name}@{found.version}")
        yield {**body, **_license(found)}


def _license(found: Distribution) -> Json:
    if "License-Expression" not in found.metadata:
        return {}
    return {"licenses": [{"expression": found.metadata["License-Expression"]}]}
