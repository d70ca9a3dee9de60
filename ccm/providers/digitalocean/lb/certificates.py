"""Certificates by name, and those of Let's Encrypt, whose ID changes with each renewal."""

from ccm.errors import NotFound, Refused
from ccm.http import path_of
from ccm.model.objects import Json, mapping, objects_with, text
from ccm.providers.digitalocean.api import DigitalOceanApi
from ccm.providers.digitalocean.lb.annotations import Annotations

LETS_ENCRYPT = "lets_encrypt"


class Certificates:
    """Reads certificates when a Service has one."""

    def __init__(self, api: DigitalOceanApi) -> None:
        self._api = api

    async def id_for(self, read: Annotations, in_use: str) -> str:
        """The ID of the Service's certificate; `in_use` is that of the load balancer's rules.

        DigitalOcean puts a renewed one into the load balancer by itself: it stays, although the
        annotation has the ID from before.
        """
        if asked := read.text("certificate-id"):
            is_renewed = in_use and in_use != asked and await self._is_renewal(asked, in_use)
            return in_use if is_renewed else asked
        if not (name := read.text("certificate-name")):
            return ""
        answer = await self._api.get("ListCertificates", "/certificates", name=name, per_page="200")
        listed = objects_with(answer.get("certificates"), "name", name)
        if not listed:
            raise Refused(f"there is no certificate {name!r}, which annotation certificate-name is")
        return text(listed[0].get("id"))

    async def _is_renewal(self, before: str, after: str) -> bool:
        """Whether one of Let's Encrypt took the place of the other: by name, or as that is gone."""
        renewed = await self._get(after)
        if renewed is None or renewed.get("type") != LETS_ENCRYPT:
            return False
        known = await self._get(before)
        return known is None or known.get("name") == renewed.get("name")

    async def _get(self, certificate_id: str) -> Json | None:
        try:
            answer = await self._api.get("GetCertificate", path_of("certificates", certificate_id))
        except NotFound:
            return None
        return dict(mapping(answer.get("certificate")))
