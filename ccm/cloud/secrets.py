"""Credentials of a cloud that are in a Secret, read with the rights of who asks."""

import base64
from collections.abc import Mapping

from ccm.cloud.interface import SecretReader
from ccm.errors import CloudError, Denied, KubernetesError, Unreachable
from ccm.kube.client import Kube
from ccm.model.objects import mapping, text


def secret_reader(kube: Kube) -> SecretReader:
    """Reads Secrets as this client."""

    async def read(namespace: str, name: str) -> Mapping[str, str]:
        place = f"Secret {namespace}/{name}"
        try:
            found = await kube.get(f"/api/v1/namespaces/{namespace}/secrets/{name}")
            data = mapping(found.get("data"))
            return {key: _value(text(data[key])) for key in data}
        except KubernetesError as error:
            failure = Denied if error.status in (401, 403, 404) else CloudError
            raise failure(f"{place} cannot be read: {error}") from error
        except Unreachable as error:
            raise CloudError(f"{place} cannot be read: {error}") from error
        except ValueError as wrong:
            raise Denied(f"{place} holds a value that is not text") from wrong

    return read


def _value(encoded: str) -> str:
    """A value; `--from-file` and editors leave a line break at its end."""
    return base64.b64decode(encoded, validate=True).decode().rstrip("\r\n")
