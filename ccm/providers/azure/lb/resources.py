"""The load balancers as resources: read together, and written one Service at a time."""

from collections.abc import Collection

from ccm.errors import Refused, RetryAfter
from ccm.model.objects import Json, copy_of
from ccm.providers.azure import ids
from ccm.providers.azure.api import AzureApi
from ccm.providers.azure.balancer_configs import INTERNAL_SUFFIX
from ccm.providers.azure.config import AzureConfig
from ccm.providers.azure.lb import plan
from ccm.providers.azure.lb.names import Names
from ccm.providers.azure.lb.placement import Balancers, Place
from ccm.providers.azure.lb.plan import NO_ADDRESS_RETRY, BalancerPlan, own_frontends
from ccm.providers.azure.shared_writes import SharedResource


class BalancerResources:
    """Those that the file names, each with its internal twin, `by_place`."""

    def __init__(self, api: AzureApi, config: AzureConfig, cluster: str) -> None:
        self._api, self._empty = api, _empty(config)
        scope = config.network_scope(config.load_balancer_resource_group)
        self._list_path = scope.id(ids.NETWORK, "loadBalancers")
        names = [item.name for item in config.balancers] or [config.load_balancer_name or cluster]
        self.by_place = {
            Place(name.lower(), is_internal): SharedResource(
                api, "LoadBalancer", f"{self._list_path}/{name}{suffix}", self._empty, plan.is_used
            )
            for name in names
            for is_internal, suffix in ((False, ""), (True, INTERNAL_SUFFIX))
        }

    async def read(self) -> Balancers:
        """Those that are there."""
        listed = await self._api.list("ListLoadBalancers", self._list_path)
        paths = {item.path.lower(): place for place, item in self.by_place.items()}
        return {paths[ids.key_of(item)]: item for item in listed if ids.key_of(item) in paths}

    async def write(self, planned: BalancerPlan, place: Place, balancers: Balancers) -> Balancers:
        """Put the Service's parts into its load balancer; before, take them out of others whose
        frontends have the same address. What is right is not written.
        """
        current, names = balancers.get(place), planned.request.names
        copy = copy_of(current or self._empty)
        planned.apply(copy)
        same_kind = [item for item in balancers if item.is_internal == place.is_internal]
        others = [item for item in same_kind if item != place]
        for other in others:
            if plan.is_shared(balancers[other], names):
                raise Refused(
                    f"it cannot leave load balancer {other.name}: others use its frontend"
                )
        left = await self.leave(names, balancers, others)
        has_failed = current and ids.properties_of(current).get("provisioningState") == "Failed"
        if current and copy == current and not has_failed:
            return left
        change, owner = self.by_place[place].change, names.service.namespace
        try:
            return {**left, place: await change(planned.apply, current, owner=owner) or {}}
        except Refused as error:
            if left is balancers:
                raise
            why = f"it has left its load balancer: {error}"  # a machine may have got its address
            raise RetryAfter(why, NO_ADDRESS_RETRY) from error

    async def withdraw(self, names: Names, balancers: Balancers) -> None:
        """Take the Service's rules that lead to node ports out of these load balancers."""
        for place, balancer in balancers.items():
            if plan.has_own_node_ports([balancer], names):
                change = self.by_place[place].change
                await change(lambda item: plan.remove_node_ports(item, names), balancer)

    async def leave(
        self, names: Names, balancers: Balancers, places: Collection[Place]
    ) -> Balancers:
        """Take the Service's parts out of these load balancers; those that are left."""
        for place in list(places):
            balancer = balancers[place]
            if own_frontends(balancer, names) or plan.has_parts(balancer, names):
                changed = await self.by_place[place].change(lambda item: plan.remove(item, names))
                left = {other: item for other, item in balancers.items() if other != place}
                balancers = {**left, place: changed} if changed else left
        return balancers


def _empty(config: AzureConfig) -> Json:
    tags = config.resource_tags
    found: Json = {"location": config.location, "sku": {"name": "Standard"}, "properties": {}}
    return found | ({"tags": tags} if tags else {})
