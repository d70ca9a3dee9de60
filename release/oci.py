"""An image of one layer in the layout of the Open Container Initiative, packed into one file."""

import hashlib
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import orjson

from release.packages import compressed, packed
from release.tree import epoch

TYPE = "application/vnd.oci.image"


DEFAULT_REGISTRY = "docker.io/library"
"""What a name without a registry stands for, to containerd and kubelets."""


@dataclass(frozen=True, slots=True)
class Blob:
    """Some content, and what it is called by its hash."""

    media_type: str
    content: bytes

    @property
    def digest(self) -> str:
        return f"sha256:{hashlib.sha256(self.content).hexdigest()}"

    @property
    def descriptor(self) -> dict[str, Any]:
        return {"mediaType": self.media_type, "digest": self.digest, "size": len(self.content)}


def image_archive(
    root: Path, architecture: str, config: Mapping[str, Any], name: str
) -> tuple[str, bytes]:
    """The digest of the image and its archive; `name` is what manifests call the image.

    Kubelets ask for it by the whole name, which containerd keeps as the archive says it: without
    the registry that a short name stands for, no Pod would find an image that was imported.
    """
    content = layer(root)
    packed_layer = Blob(f"{TYPE}.layer.v1.tar+gzip", compressed(content))
    created = datetime.fromtimestamp(epoch(), UTC).isoformat().replace("+00:00", "Z")
    image = {
        "architecture": architecture,
        "os": "linux",
        "created": created,
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [Blob("", content).digest]},
        "history": [{"created": created, "created_by": "make image"}],
    }
    settings = Blob(f"{TYPE}.config.v1+json", orjson.dumps(image))
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{TYPE}.manifest.v1+json",
        "config": settings.descriptor,
        "layers": [packed_layer.descriptor],
    }
    top = Blob(f"{TYPE}.manifest.v1+json", orjson.dumps(manifest))
    names = {
        "org.opencontainers.image.ref.name": name.partition(":")[2],
        "io.containerd.image.name": f"{DEFAULT_REGISTRY}/{name}",
    }
    index = {"schemaVersion": 2, "manifests": [{**top.descriptor, "annotations": names}]}
    blobs = {
        f"blobs/{blob.digest.replace(':', '/')}": (blob.content, False)
        for blob in (packed_layer, settings, top)
    }
    files = {
        "oci-layout": (b'{"imageLayoutVersion": "1.0.0"}', False),
        "index.json": (orjson.dumps(index), False),
        **blobs,
    }
    return top.digest, packed(files)


def layer(root: Path) -> bytes:
    """The file system as an archive: all is root's, of the release's time, and not setuid."""
    archive = BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(root.rglob("*")):
            member = tar.gettarinfo(path, str(path.relative_to(root)))
            member.uid, member.gid, member.uname, member.gname = 0, 0, "root", "root"
            member.mtime = epoch()
            is_open = member.mode & 0o100 or not member.isreg()
            member.mode = 0o1777 if member.mode & 0o1000 else 0o755 if is_open else 0o644
            with path.open("rb") if member.isreg() else BytesIO() as source:
                tar.addfile(member, source)
    return archive.getvalue()
