"""The firewall controller, upstream's: opens the node ports of Services on the Nodes' droplets.

There is one firewall for the cluster, named in the configuration, and so one key. Hand changes are
reverted.
"""

import asyncio
import logging
import time
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, cast

from ccm.bus.frames import Message
from ccm.cloud.gate import call
from ccm.decide.budget import Priority, RoundRobin
from ccm.kube.events import ObjectRef
from ccm.model.objects import Json, Projection
from ccm.model.rbac import event_rule
from ccm.model.service import SOURCE_RANGES, Service
from ccm.providers.digitalocean import firewall_plan as plan
from ccm.providers.digitalocean.firewall_plan import Inbound, Reading
from ccm.providers.digitalocean.lb.annotations import BALANCER_ID, DISOWN, PREFIX
from ccm.settings import Settings
from workers.controller import ControllerContext, NotNeeded, Result
from workers.queue import RETRY, namespace_of

if TYPE_CHECKING:
    from ccm.providers.digitalocean.provider import DigitalOceanCloud

log = logging.getLogger(__name__)

COMPONENT = "firewall-controller"
_SPEC = (
    "type",
    "ports",
    "externalTrafficPolicy",
    "healthCheckNodePort",
    "loadBalancerSourceRanges",
)
_ANNOTATIONS = (
    plan.MANAGED,
    BALANCER_ID,
    DISOWN,
    SOURCE_RANGES,
    *(f"{PREFIX}{name}" for name in ("type", "network", "name", "hostname")),
)
PROJECTIONS = (
    Projection(
        "Service",
        (
            ("metadata", "name"),
            ("metadata", "namespace"),
            ("metadata", "uid"),
            ("status", "loadBalancer"),
            *(("metadata", "annotations", name) for name in _ANNOTATIONS),
            *(("spec", name) for name in _SPEC),
        ),
    ),
)
BACKOFF = RETRY
POLICY_RULES = (event_rule(),)

KEY = "firewall"
RESYNC_PERIOD = 300.0  # seconds; upstream's
READING = 0.1  # seconds in which Services are read that have changed; one may take as long


def concurrency(settings: Settings) -> int:
    """There is one key."""
    return 1


def new_controller(context: ControllerContext) -> "FirewallController":
    """The firewall controller of this process; raises `NotNeeded` without a firewall."""
    if cast("DigitalOceanCloud", context.provider).firewalls is None:
        raise NotNeeded("no firewall is configured: [Firewall] name, PUBLIC_ACCESS_FIREWALL_NAME")
    return FirewallController(context)


class FirewallController:
    """Keeps one firewall as all Services need it."""

    def __init__(self, context: ControllerContext) -> None:
        cloud = cast("DigitalOceanCloud", context.provider)
        assert cloud.firewalls
        self._context, self._firewalls = context, cloud.firewalls
        self._config = cloud.config
        self._services: dict[str, Reading] = {}
        self._unread, self._changed = RoundRobin[str](), RoundRobin[str]()
        self._has_begun = False
        self._ensured: tuple[set[Inbound], Json] | None = None
        """The rules and the addresses of load balancers; None when it is to be looked at."""

    def map_to_keys(self, kind: str, key: str) -> Iterable[str]:
        """The one key, whichever Service changes."""
        waiting = self._changed if self._has_begun else self._unread
        waiting.add(namespace_of(key), key)
        return (KEY,)

    async def _read(self) -> None:
        """Read all Services at first, then what has changed, in turns of namespaces.

        Each has a turn of the loop; what there is no time for is what it was until the next pass.
        """
        self._has_begun = True
        while self._unread:
            await self._read_next(self._unread)
        until = time.monotonic() + READING
        while self._changed and time.monotonic() < until:
            await self._read_next(self._changed)
        if self._changed:
            self._context.queue.add(KEY)

    async def _read_next(self, waiting: RoundRobin[str]) -> None:
        key = waiting.pop()
        if service := self._context.store.view(Service, key):
            self._services[key] = Reading.of(service, self._config.balancers.type)
        else:
            self._services.pop(key, None)
        await asyncio.sleep(0)

    async def run(self) -> None:
        """Look for changes by others."""
        while True:
            await asyncio.sleep(RESYNC_PERIOD)
            self._ensured = None
            self._context.queue.add(KEY)

    def on_message(self, message: Message) -> None:
        return

    def object_ref(self, key: str) -> ObjectRef | None:
        return None

    def status(self) -> Json:
        return {"objects": len(self._services)}

    def details(self, key: str) -> Json:
        return {"services": len(self._services)}

    async def reconcile(self, key: str) -> Result:
        await self._read()
        readings = self._services.values()
        services = [item.service for item in readings]
        rules = plan.fitting(readings, self._config.firewall.opens)
        asked = rules, {service.uid: service.ingress for service in services if service.ingress}
        if asked == self._ensured:
            return Result(f"{len(rules)} ports are open, as before")
        self._ensured = None
        self._log_closed(readings, rules)
        is_written: bool = await call(Priority.LB_ENSURE, self._firewalls.ensure, rules, services)
        self._ensured = asked
        return Result(f"{len(rules)} ports are open{' now' if is_written else ''}")

    def _log_closed(self, readings: Collection[Reading], rules: set[Inbound]) -> None:
        """Say which ports Services need that are others', not allowed, or that have no room."""
        opens = self._config.firewall.opens
        allowed = plan.opened(readings, opens)
        for closed, remedy in (
            (plan.opened(readings, bool) - allowed, "allow them in [Firewall] port"),
            (
                plan.opened(readings, opens, with_taken=True) - allowed,
                "they are node ports of other Services: use other ports",
            ),
            (allowed - rules, f"a firewall has {plan.MOST_RULES} rules: use fewer node ports"),
        ):
            if ports := sorted({f"{item.protocol} {item.port}" for item in closed}):
                log.warning("ports stay closed", extra={"ports": ports, "remedy": remedy})
