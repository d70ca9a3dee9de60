"""By what a cluster knows itself from others of its name."""

from typing import Any

import pytest

from ccm.errors import KubernetesError
from ccm.kube.cluster_identity import PATH, read_cluster_uid
from ccm.model.objects import Json


class FakeKube:
    """Answers with this status, and its reason, so many times, then with the namespace."""

    def __init__(self, status: int, reason: str = "", times: int = 100) -> None:
        self.status, self.reason, self.times = status, reason, times

    async def get(self, path: str) -> Json:
        assert path == PATH
        self.times -= 1
        if self.status >= 300 and self.times >= 0:
            raise KubernetesError(self.status, self.reason, "no", None)
        return {"metadata": {"name": "kube-system", "uid": "u-1"}}


async def test_a_cluster_is_known_by_the_uid_of_a_namespace() -> None:
    kube: Any = FakeKube(200)
    assert await read_cluster_uid(kube) == "u-1"


@pytest.mark.virtual_time
async def test_without_the_right_to_read_it_one_warning_is_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kube: Any = FakeKube(403, "Forbidden")
    assert await read_cluster_uid(kube) == ""
    assert [record.message for record in caplog.records] == ["the cluster's UID cannot be read"]


@pytest.mark.virtual_time
@pytest.mark.parametrize(("status", "reason"), [(403, "Forbidden"), (404, "NotFound")])
async def test_one_denial_does_not_decide_whose_everything_is_until_a_restart(
    status: int, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An API server that starts denies all until it has read the roles, or lacks the namespace."""
    kube: Any = FakeKube(status, reason, times=1)
    assert await read_cluster_uid(kube) == "u-1"
    assert caplog.records == []


@pytest.mark.parametrize("status", [503, 404])
async def test_what_fails_for_a_moment_is_not_taken_for_a_missing_right(status: int) -> None:
    """A proxy may answer with 404 as well."""
    kube: Any = FakeKube(status)
    with pytest.raises(KubernetesError):
        await read_cluster_uid(kube)
