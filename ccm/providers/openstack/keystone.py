"""Tokens of Keystone and the catalogue that comes with them: what is asked and what is read.

Without a library: Keystone's own, `keystoneauth1`, takes 0.3 s and 12 MiB in each worker, the
whole SDK 1.1 s and 26 MiB; neither has a deadline for a call (docs/providers/openstack.md).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from ccm.cloud.config_file import url
from ccm.errors import CloudError, Refused
from ccm.model.objects import Json, mapping, objects, text
from ccm.providers.openstack.credentials import GlobalSection, project_domain, user_domain

SERVICE_TYPES = {
    "compute": ("compute",),
    "network": ("network",),
    "load-balancer": ("load-balancer",),
    "volume": ("block-storage", "volumev3", "block-store", "volume"),
}
"""Our names of the services, and the types that they have in catalogues; the first counts."""
MAX_SERVICES, MAX_ENDPOINTS = 100, 1000  # each; a catalogue is gone through for each request
VERSIONS = {"compute": "v2.1", "network": "v2.0", "load-balancer": "v2.0", "volume": "v3"}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a service is reached, with its version, and in which region."""

    url: str
    region: str


@dataclass(frozen=True, slots=True)
class Token:
    """A token, for how many seconds it is good, its project, and the catalogue."""

    value: str = field(repr=False)
    lifetime: float
    project_id: str
    catalog: tuple[Json, ...]

    def endpoint(self, service: str, region: str, interface: str) -> Endpoint:
        """Where a service is; `Refused` when the catalogue has it not.

        What else than a URL of a host it has there gets no token, such as a socket of this machine.
        """
        for type_ in SERVICE_TYPES[service]:
            for found in self._endpoints(type_):
                is_wanted = text(found.get("interface")) == interface
                where = text(found.get("region_id")) or text(found.get("region"))
                if is_wanted and region in ("", where):
                    try:
                        found_url = url(text(found.get("url")), ("http", "https"), None)
                    except ValueError as error:
                        why = f"the catalogue has no usable URL of {service}: {error}"
                        raise CloudError(why) from error
                    return Endpoint(self._with_version(service, found_url), where)
        in_region = f" in region {region}" if region else ""
        raise Refused(f"the catalogue has no {interface} endpoint of {service}{in_region}")

    def _endpoints(self, type_: str) -> Iterator[Json]:
        for entry in self.catalog:
            if entry.get("type") == type_:
                yield from objects(entry.get("endpoints"))

    def _with_version(self, service: str, base: str) -> str:
        """The URL with the API's version in it, which catalogues may leave out."""
        path = urlsplit(base).path
        if any(part[:1] == "v" and part[1:2].isdigit() for part in path.split("/")):
            return base
        project = f"/{self.project_id}" if service == "volume" else ""
        return f"{base}/{VERSIONS[service]}{project}"


def tokens_url(auth_url: str) -> str:
    """Keystone's URL with its version, whichever way it is configured."""
    url = auth_url.rstrip("/").removesuffix("/v2.0")
    return url if url.endswith("/v3") else f"{url}/v3"


def token_request(known: GlobalSection) -> Json:
    """The body of the request for a token."""
    if known.token:
        return _request("token", {"id": known.token}, _scope(known))
    if known.application_credential_id or known.application_credential_name:
        credential: Json = {"secret": known.application_credential_secret}
        if known.application_credential_id:
            credential["id"] = known.application_credential_id
        else:
            credential |= {"name": known.application_credential_name, "user": _user(known)}
        return _request("application_credential", credential, {})
    if known.trust_id and known.trustee_id:
        user = {"id": known.trustee_id, "password": known.trustee_password}
    else:
        user = {**_user(known), "password": known.password}
    return _request("password", {"user": user}, _scope(known))


def _request(method: str, details: Json, scope: Json) -> Json:
    auth: Json = {"identity": {"methods": [method], method: details}}
    return {"auth": auth | ({"scope": scope} if scope else {})}


def _user(known: GlobalSection) -> Json:
    if known.user_id:
        return {"id": known.user_id}
    return {"name": known.username, "domain": user_domain(known)}


def _scope(known: GlobalSection) -> Json:
    if known.trust_id:
        return {"OS-TRUST:trust": {"id": known.trust_id}}
    if known.tenant_id:
        return {"project": {"id": known.tenant_id}}
    if known.tenant_name:
        return {"project": {"name": known.tenant_name, "domain": project_domain(known)}}
    return {}


def read_token(value: str, answer: Any) -> Token:
    """The token in Keystone's answer; its life is by Keystone's clock alone."""
    token: Mapping[str, Any] = mapping(mapping(answer).get("token"))
    try:
        ends = datetime.fromisoformat(text(token.get("expires_at")))
        began = datetime.fromisoformat(text(token.get("issued_at")))
        lifetime = (ends - began).total_seconds()
    except (TypeError, ValueError) as error:
        raise CloudError(f"Keystone's answer is not understood: {error}") from error
    catalog = tuple(
        {**entry, "endpoints": objects(entry.get("endpoints"))[:MAX_ENDPOINTS]}
        for entry in objects(token.get("catalog"))[:MAX_SERVICES]
    )
    project_id = text(mapping(token.get("project")).get("id"))
    if not value or not catalog or not project_id:
        why = "Keystone's answer has no token, no catalogue or no project: is a project given?"
        raise CloudError(why)
    return Token(value, lifetime, project_id, catalog)
