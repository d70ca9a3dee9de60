"""What a provider reads in the cluster: Secrets, ConfigMaps, labels of namespaces."""

import base64
import logging
from collections.abc import Mapping
from dataclasses import replace

from ccm.cloud.interface import (
    ConfigMapKeeper,
    NamespaceReader,
    ProviderContext,
    SecretReader,
)
from ccm.errors import CloudError, Denied, KubernetesError, Unreachable
from ccm.kube.client import Kube, about
from ccm.model.objects import Json, mapping, text

log = logging.getLogger(__name__)


def with_readers(context: ProviderContext, kube: Kube, *, creates: bool) -> ProviderContext:
    """What a provider is given, with all that is read as this client."""
    return replace(
        context,
        read_secret=secret_reader(kube),
        keep_config_map=config_map_keeper(kube, creates=creates),
        read_namespace=namespace_reader(kube),
    )


def secret_reader(kube: Kube) -> SecretReader:
    """Reads Secrets as this client."""

    async def read(namespace: str, name: str) -> Mapping[str, str]:
        place = f"Secret {namespace}/{name}"
        found = await _get(kube, f"/api/v1/namespaces/{namespace}/secrets/{name}", place)
        data = mapping(found.get("data"))
        try:
            return {key: _value(text(data[key])) for key in data}
        except ValueError as error:
            raise Denied(f"{place} holds a value that is not text") from error

    return read


def namespace_reader(kube: Kube) -> NamespaceReader:
    """Reads the labels of namespaces as this client."""

    async def read(name: str) -> Mapping[str, str]:
        found = await _get(kube, f"/api/v1/namespaces/{name}", f"Namespace {name}")
        labels = mapping(mapping(found.get("metadata")).get("labels"))
        return {key: text(value) for key, value in labels.items()}

    return read


async def _get(kube: Kube, path: str, place: str) -> Json:
    try:
        return about(path, await kube.get(path))
    except KubernetesError as error:
        failure = Denied if error.is_denial or error.is_gone else CloudError
        raise failure(f"{place} cannot be read: {error}") from error
    except Unreachable as error:
        raise CloudError(f"{place} cannot be read: {error}") from error


def config_map_keeper(kube: Kube, *, creates: bool) -> ConfigMapKeeper:
    """Reads ConfigMaps as this client, and `creates` those that are missing."""

    async def keep(namespace: str, name: str, data: Mapping[str, str]) -> Mapping[str, str]:
        path, place = f"/api/v1/namespaces/{namespace}/configmaps", f"ConfigMap {namespace}/{name}"
        try:
            found = about(f"{path}/{name}", await kube.get(f"{path}/{name}"))
            return {key: text(value) for key, value in mapping(found.get("data")).items()}
        except KubernetesError as error:
            if not error.is_gone:
                failure = Denied if error.is_denial else CloudError
                raise failure(f"{place} cannot be read: {error}") from error
        except Unreachable as error:
            raise CloudError(f"{place} cannot be read: {error}") from error
        if creates:
            try:
                await kube.post(path, {"metadata": {"name": name}, "data": dict(data)})
            except KubernetesError as error:
                if not error.is_denial:
                    raise CloudError(f"{place} cannot be created: {error}") from error
                log.warning(
                    "a ConfigMap is not created", extra={"config_map": place, "why": str(error)}
                )
            except Unreachable as error:
                raise CloudError(f"{place} cannot be created: {error}") from error
        return data

    return keep


def _value(encoded: str) -> str:
    """A value; `--from-file` and editors leave a line break at its end."""
    return base64.b64decode(encoded, validate=True).decode().rstrip("\r\n")
