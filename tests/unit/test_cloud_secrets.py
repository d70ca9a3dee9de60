"""Credentials that are in a Secret."""

import base64
from typing import Any, cast

import pytest

from ccm.cloud.secrets import secret_reader
from ccm.errors import CloudError, Denied, KubernetesError, Unreachable
from ccm.kube.client import Kube
from ccm.model.objects import Json


class Server:
    """Answers each read like this."""

    def __init__(self, answer: Json | Exception) -> None:
        self.answer, self.paths = answer, list[str]()

    async def get(self, path: str) -> Json:
        self.paths.append(path)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


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
        (KubernetesError(500, "InternalError", "no", None), CloudError),
        (Unreachable("no"), CloudError),
        ({"data": {"a": encoded(b"\xff")}}, Denied),
        ({"data": {"a": "!"}}, Denied),
    ],
)
async def test_what_cannot_be_read_is_reported(answer: Any, kind: type[CloudError]) -> None:
    with pytest.raises(CloudError, match="Secret n/s") as raised:
        await secret_reader(cast(Kube, Server(answer)))("n", "s")
    assert type(raised.value) is kind
