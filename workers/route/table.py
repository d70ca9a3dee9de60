"""The worker's copy of this cluster's routes: as they were listed, and what was done since."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from ccm.model.cloud import Network, Route, read_network

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class KnownRoute:
    """A route and its network; one that we created is not `is_listed` before it was seen."""

    route: Route
    network: Network
    is_listed: bool = True


class RouteTable:
    """Routes by target and by network. `unreadable` of those listed have no network: left alone."""

    def __init__(self, routes: Iterable[Route] = ()) -> None:
        self._by_node: dict[str, dict[KnownRoute, None]] = {}
        self._by_network: dict[Network, dict[KnownRoute, None]] = {}
        self._done: list[tuple[bool, KnownRoute]] = []
        self.unreadable = 0
        for route in routes:
            network = read_network(route.cidr)
            if network is None:
                self.unreadable += 1
            else:
                self._put(KnownRoute(route, network))

    def __len__(self) -> int:
        return sum(len(routes) for routes in self._by_network.values())

    def __iter__(self) -> Iterator[KnownRoute]:
        for routes in self._by_network.values():
            yield from routes

    def to(self, node: str) -> list[KnownRoute]:
        """Routes that lead to this Node; those without a known target under empty text."""
        return list(self._by_node.get(node, ()))

    def leads(self, node: str, network: Network) -> bool:
        """Whether a route to exactly this network leads to this Node."""
        return any(known.network == network for known in self._by_node.get(node, ()))

    def on(self, network: Network) -> list[KnownRoute]:
        """Routes to exactly this network."""
        return list(self._by_network.get(network, ()))

    def created(self, node: str, network: Network) -> None:
        """Remember a route of ours; its `id` is not known before it was listed."""
        known = KnownRoute(Route(str(network), node), network, is_listed=False)
        self._put(known)
        self._done.append((True, known))

    def deleted(self, known: KnownRoute) -> None:
        self._take(known)
        self._done.append((False, known))

    def disown(self, node: str) -> None:
        """The Node of this name is no longer what it was: where its routes lead is not known."""
        for known in self.to(node):
            self._take(known)
            self._put(replace(known, route=replace(known.route, node="")))

    def begin_listing(self) -> None:
        """From now on, remember what is done beside the listing."""
        self._done.clear()

    def relisted(self, routes: Iterable[Route]) -> "RouteTable":
        """The table after a listing; what was done beside it may or may not be in `routes`."""
        table = RouteTable(routes)
        for is_created, known in self._done:
            if not is_created:
                for same in table.on(known.network):
                    if same.route.id == known.route.id:
                        table._take(same)
            elif all(same.route.node != known.route.node for same in table.on(known.network)):
                table._put(known)
        return table

    def _put(self, known: KnownRoute) -> None:
        self._by_node.setdefault(known.route.node, {})[known] = None
        self._by_network.setdefault(known.network, {})[known] = None

    def _take(self, known: KnownRoute) -> None:
        _without(self._by_node, known.route.node, known)
        _without(self._by_network, known.network, known)


def _without(index: dict[K, dict[KnownRoute, None]], key: K, known: KnownRoute) -> None:
    routes = index.get(key, {})
    routes.pop(known, None)
    if not routes:
        index.pop(key, None)
