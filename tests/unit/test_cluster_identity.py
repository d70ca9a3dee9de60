"""By what a cluster knows itself from others of its name."""

from typing import Any

import pytest

from ccm.errors import KubernetesError
from ccm.kube.cluster_identity import PATH, read_cluster_uid
from ccm.model.objects import Json


class FakeKube:
    def __init__(self, status: int) -> None:
        self.status = status

    async def get(self, path: str) -> Json:
        assert path == PATH
        if self.status >= 300:
            raise KubernetesError(
                self.status, "" if self.status == 404 else "Forbidden", "no", None
            )
        return {"metadata": {"name": "kube-system", "uid": "u-1"}}


async def test_a_cluster_is_known_by_the_uid_of_a_namespace() -> None:
    kube: Any = FakeKube(200)
    assert await read_cluster_uid(kube) == "u-1"


async def test_without_the_right_to_read_it_one_warning_is_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kube: Any = FakeKube(403)
    assert await read_cluster_uid(kube) == ""
    assert [record.message for record in caplog.records] == ["the cluster's UID cannot be read"]


@pytest.mark.parametrize("status", [503, 404])
async def test_what_fails_for_a_moment_is_not_taken_for_a_missing_right(status: int) -> None:
    """A proxy may answer with 404 as well."""
    kube: Any = FakeKube(status)
    with pytest.raises(KubernetesError):
        await read_cluster_uid(kube)
