"""Reads and writes the firewall of node ports, found by its name."""

import logging
from collections.abc import Collection, Iterable, Sequence

from ccm.cloud.lookup import find_lost
from ccm.errors import CloudError, Refused
from ccm.http import path_of
from ccm.model.objects import Json, mapping, objects_with, text
from ccm.model.service import Service
from ccm.providers.digitalocean import firewall_plan as plan
from ccm.providers.digitalocean.api import BALANCERS, DigitalOceanApi
from ccm.providers.digitalocean.config import FirewallSection
from ccm.providers.digitalocean.firewall_plan import Inbound
from ccm.providers.digitalocean.ids import Cluster
from ccm.providers.digitalocean.lb.names import Names

log = logging.getLogger(__name__)


class Firewalls:
    """The one of the configuration; any of this name is ours."""

    def __init__(self, api: DigitalOceanApi, section: FirewallSection, cluster: Cluster) -> None:
        self._api, self._section, self._cluster = api, section, cluster

    async def ensure(self, rules: Collection[Inbound], services: Iterable[Service]) -> bool:
        """Whether the firewall had to be written to have exactly these rules, of these Services."""
        uids = {rule.service_uid for rule in rules} - {""}
        current, section = await self._find(), self._section
        asked = [service for service in services if service.uid in uids]
        balancers = await self._balancers(asked, plan.balancers_of(current))
        wanted = plan.body(section.name, section.tag, rules, balancers, current)
        if current and not plan.is_different(wanted, current):
            return False
        if current:
            again = await self._find()  # one list may lack droplets that someone added
            if again.get("id") != current.get("id"):
                raise CloudError("ListFirewalls: two answers differ in which firewall it is")
            added = {*wanted["droplet_ids"], *(again.get("droplet_ids") or ())}
            path = path_of("firewalls", text(current.get("id")))
            wanted |= {"droplet_ids": sorted(added)}
            await self._api.write("UpdateFirewall", "PUT", path, wanted)
        else:
            await self._api.write("CreateFirewall", "POST", "/firewalls", wanted)
        ports = sorted(f"{item.protocol} {item.port}" for item in rules)
        log.info("firewall written", extra={"firewall": self._section.name, "ports": ports})
        return True

    async def _balancers(
        self, services: Sequence[Service], current: Collection[str]
    ) -> dict[str, str]:
        """The IDs of their own load balancers by the UIDs of Services, whatever is annotated.

        Each of the `current` ones is looked for that the list lacks, or its ports would close. All
        may be gone, as with their namespace, and would be in the way of each write.
        """
        if not services:
            return {}
        records = await self._api.balancers()
        lost = {*current} - {text(record.get("id")) for record in records}
        left = await find_lost("ListLoadBalancers", lost, self._read, plan.MOST_RULES)
        records = [*records, *left.values()]
        found = {service.uid: Names(service, self._cluster).own(records) for service in services}
        return {uid: text(own[0].get("id")) for uid, own in found.items() if own}

    async def _read(self, balancer_id: str) -> Json:
        answer = await self._api.get("GetLoadBalancer", BALANCERS + path_of(balancer_id))
        found = dict(mapping(answer.get("load_balancer")))
        if text(found.get("id")) != balancer_id:
            raise CloudError(f"GetLoadBalancer: the answer is not about {balancer_id}")
        return found

    async def _find(self) -> Json:
        """Its record; empty when there is none."""
        listed = await self._api.list("ListFirewalls", "/firewalls", "firewalls")
        found = objects_with(listed.records, "name", self._section.name)
        if len(found) > 1:
            raise Refused(f"{len(found)} firewalls are called {self._section.name}")
        if not found:
            listed.verify_complete()
        return found[0] if found else {}
