"""The image's archive is found under the name that manifests give it."""

import io
import tarfile
from pathlib import Path

import orjson
import pytest

from ccm.cli.manifests import IMAGE
from release import oci


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tarfile.TarFile:
    (tmp_path / "file").write_text("content")
    monkeypatch.setattr(oci, "epoch", lambda: 0)
    _, content = oci.image_archive(tmp_path, "amd64", {}, IMAGE)
    return tarfile.open(fileobj=io.BytesIO(content))


def test_containerd_keeps_it_under_the_whole_name_that_kubelets_ask_for(
    archive: tarfile.TarFile,
) -> None:
    index = archive.extractfile("index.json")
    assert index
    [image] = orjson.loads(index.read())["manifests"]
    whole = f"docker.io/library/{IMAGE}"
    assert image["annotations"]["io.containerd.image.name"] == whole
    assert image["annotations"]["org.opencontainers.image.ref.name"] == IMAGE.partition(":")[2]
