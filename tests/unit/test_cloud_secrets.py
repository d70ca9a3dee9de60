"""What a provider has in the cluster: a Secret, and a ConfigMap that may have to be made."""

import base64
from typing import Any, cast

import pytest

from ccm.cloud.secrets import config_map_keeper, namespace_reader, secret_reader
from ccm.errors import CloudError, Denied, KubernetesError, Unreachable
from ccm.kube.client import Kube
from ccm.model.objects import Json


class Server:
    """Answers each read like this."""

    def __init__(self, answer: Json | Exception, denies_posts: bool = False) -> None:
        self.answer, self.paths, self.denies_posts = answer, list[str](), denies_posts

    async def get(self, path: str) -> Json:
        self.paths.append(path)
        if isinstance(self.answer, Exception):
            raise self.answer
        *_, plural, name = path.split("/")
        place = {} if plural == "namespaces" else {"namespace": path.split("/")[4]}
        return {"kind": plural[:-1].title(), "metadata": {"name": name, **place}} | self.answer

    async def post(self, path: str, body: Json) -> Json:
        self.paths.append(f"{path} {body['metadata']['name']} {body['data']}")
        if self.denies_posts:
            raise KubernetesError(403, "Forbidden", "no", None)
        return body


def encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()


async def test_what_it_holds_is_text() -> None:
    data = {"a": encoded("pässword".encode()), "b": "", "c": encoded(b" of a file\r\n")}
    server = Server({"data": data})
    found = await secret_reader(cast(Kube, server))("kube-system", "vsphere")
    assert found == {"a": "pässword", "b": "", "c": " of a file"}
    assert server.paths == ["/api/v1/namespaces/kube-system/secrets/vsphere"]
    assert await secret_reader(cast(Kube, Server({})))("n", "s") == {}


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (KubernetesError(403, "Forbidden", "no", None), Denied),
        (KubernetesError(404, "NotFound", "no", None), Denied),
        (KubernetesError(404, "Not Found", "404 page not found", None), CloudError),
        (KubernetesError(500, "InternalError", "no", None), CloudError),
        (Unreachable("no"), CloudError),
        ({"kind": "ConfigMap"}, CloudError),
        ({"metadata": {"name": "other", "namespace": "n"}}, CloudError),
        ({"data": {"a": encoded(b"\xff")}}, Denied),
        ({"data": {"a": "!"}}, Denied),
    ],
)
async def test_what_cannot_be_read_is_reported(answer: Any, kind: type[CloudError]) -> None:
    with pytest.raises(CloudError, match="Secret n/s") as raised:
        await secret_reader(cast(Kube, Server(answer)))("n", "s")
    assert type(raised.value) is kind


@pytest.mark.parametrize("creates", [True, False])
@pytest.mark.parametrize("denies", [True, False])
async def test_a_config_map_that_is_missing_is_made_where_that_is_allowed(
    creates: bool, denies: bool
) -> None:
    server = Server(KubernetesError(404, "NotFound", "no", None), denies)
    keep = config_map_keeper(cast(Kube, server), creates=creates)
    assert await keep("n", "c", {"uid": "a"}) == {"uid": "a"}
    path = "/api/v1/namespaces/n/configmaps"
    assert server.paths == [f"{path}/c", *[f"{path} c {{'uid': 'a'}}"] * creates]
    server.answer = {"data": {"uid": "b"}}
    assert await keep("n", "c", {"uid": "a"}) == {"uid": "b"}


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (KubernetesError(403, "Forbidden", "no", None), Denied),
        (KubernetesError(404, "Not Found", "404 page not found", None), CloudError),
        (KubernetesError(500, "InternalError", "no", None), CloudError),
        (Unreachable("no"), CloudError),
        ({"metadata": {"name": "another", "namespace": "n"}}, CloudError),
    ],
)
async def test_a_config_map_that_cannot_be_read_is_not_made(
    answer: Json | Exception, kind: type[CloudError]
) -> None:
    """A proxy mixes up answers, or answers 404 by itself: all load balancers would be another's."""
    server = Server(answer)
    with pytest.raises(CloudError, match="ConfigMap n/c") as raised:
        await config_map_keeper(cast(Kube, server), creates=True)("n", "c", {})
    assert type(raised.value) is kind
    assert len(server.paths) == 1


async def test_labels_of_a_namespace_are_text() -> None:
    server = Server({"metadata": {"name": "n", "labels": {"team": "a", "n": 1}}})
    assert await namespace_reader(cast(Kube, server))("n") == {"team": "a", "n": ""}
    assert server.paths == ["/api/v1/namespaces/n"]
    server.answer = KubernetesError(403, "Forbidden", "no", None)
    with pytest.raises(Denied, match="Namespace n cannot be read"):
        await namespace_reader(cast(Kube, server))("n")
