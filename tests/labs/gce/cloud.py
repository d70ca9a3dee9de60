"""A project of Compute Engine: resources, what holds what, operations and time."""

import re
import time
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any
from uuid import uuid4

from tests.labs.gce.contract import Json, Method, Refusal
from tests.labs.gce.project import (
    Operation,
    Project,
    is_in,
)
from tests.labs.gce.resources import CHECKS, HOLDS, LOOSE, ONCE_ONLY, dig, refuse

COLLECTIONS = {"regionBackendServices": "backendServices", "regionDisks": "disks"}
SCOPES = ("project", "zone", "region")
IN_USE = "resourceInUseByAnotherResource"


class Cloud(Project):
    """The project as the API serves it."""

    # Requests

    def call(
        self,
        method: Method,
        places: Mapping[str, str],
        query: Mapping[str, Sequence[str]],
        body: Json,
        fault: Json | None,
    ) -> Any:
        """The answer to a request that the contract allows."""
        self.settle()
        self._warn_of_routes()
        resource, _, verb = method.name.partition(".")
        scope = f"projects/{places['project']}"
        if scope not in self.objects:
            permission = f"Required 'compute.{resource}.{verb}' permission for '{scope}'"
            raise Refusal(403, "forbidden", permission)
        for kind in ("zone", "region"):
            if kind in places and resource != f"{kind}s":
                scope = f"{scope}/{kind}s/{places[kind]}"
                self.get(scope)
        scope += "/global" * method.is_global
        if resource.endswith("Operations"):
            return self._operation(verb, f"{scope}/operations/{places['operation']}")
        collection = COLLECTIONS.get(resource, resource)
        name = next((places[key] for key in places if key not in SCOPES), "")
        at = scope if resource == "projects" else f"{scope}/{collection}/{name}".rstrip("/")
        if resource in ("zones", "regions") and verb == "get":
            at = f"{scope}/{resource}/{places[resource[:-1]]}"
        return self._answer(method, collection, verb, scope, at, query, body, fault)

    def _answer(
        self,
        method: Method,
        collection: str,
        verb: str,
        scope: str,
        at: str,
        query: Mapping[str, Sequence[str]],
        body: Json,
        fault: Json | None,
    ) -> Any:
        match verb:
            case "get":
                return self.get(at)
            case "list":
                found = [one for path, one in sorted(self.objects.items()) if is_under(path, at)]
                return self._page(method, query, found)
            case "aggregatedList":
                return self._aggregate(method, collection, scope, query)
            case "listInstances":
                self.get(at)
                return self._page(method, query, [*self.members.get(at, {}).values()])
        request_id = query.get("requestId", [""])[0]
        if request_id in self._requests:
            return self.operations[self._requests[request_id]].record
        record = self._change(collection, verb, scope, at, body, fault)
        if request_id:
            self._requests[request_id] = self.path(record["selfLink"])
        return record

    def get(self, path: str) -> Json:
        if path not in self.objects:
            raise Refusal(404, "notFound", f"The resource '{path}' was not found")
        return self.objects[path]

    def network_of(self, subnetwork: str) -> str:
        """The URL of its network; empty where that is not known."""
        return str(self.objects.get(subnetwork, {}).get("network", ""))

    # Lists

    def _page(self, method: Method, query: Mapping[str, Sequence[str]], found: list[Json]) -> Json:
        """An empty one has no `items`."""
        found = [one for one in found if matches(query, one)]
        limit = 500 if "aggregated" in method.spec["path"] else self.page_size
        size = min(int(query.get("maxResults", ["500"])[0]), limit)
        start = int(query.get("pageToken", ["0"])[0])
        kind = method.spec["response"]
        page: Json = {"kind": f"compute#{kind[0].lower()}{kind[1:]}", "id": method.name}
        if items := found[start : start + size]:
            page["items"] = items
        if start + size < len(found):
            page["nextPageToken"] = str(start + size)
        return page

    def _aggregate(
        self, method: Method, collection: str, project: str, query: Mapping[str, Sequence[str]]
    ) -> Json:
        """A list a scope; a scope without any has a warning."""
        of_project = sorted(
            path
            for path, one in self.objects.items()
            if path.startswith(f"{project}/") and is_in(path, collection) and matches(query, one)
            if path.split("/")[3] not in self.unreachable
        )
        page = self._page(method, {**query, "filter": [""]}, [{"path": one} for one in of_project])
        scopes = [path for path in self.objects if re.fullmatch(f"{project}/zones/[^/]+", path)]
        items: Json = {}
        for scope in scopes:
            is_reached = scope.rpartition("/")[2] not in self.unreachable
            code = "NO_RESULTS_ON_PAGE" if is_reached else "UNREACHABLE"
            warning = {"code": code, "message": code}
            items[scope.removeprefix(f"{project}/")] = {"warning": warning}
        for one in page.get("items", ()):
            scope = one["path"].removeprefix(f"{project}/").rpartition(f"/{collection}/")[0]
            kept = items.get(scope, {}).get(collection, [])
            items[scope] = {collection: [*kept, self.objects[one["path"]]]}
        return {**page, "items": items}

    # Operations

    def _start(
        self, scope: str, kind: str, target: str, finish: Any = None, fault: Json | None = None
    ) -> Json:
        path = f"{scope}/operations/operation-{uuid4().hex}"
        more = {"status": "RUNNING", "operationType": kind, "targetLink": self.link(target)}
        target_id = self.objects.get(target, {}).get("id", "0")
        record = self.put(path, "operation", **more, targetId=target_id, progress=0)
        del self.objects[path]
        parts = scope.split("/")
        if len(parts) > 3:
            record[parts[2][:-1]] = self.link(scope)
        due = time.monotonic() + self.operation_delay
        self.operations[path] = Operation(record, due, fault, finish)
        self.operations[path].settle()
        return record

    def settle(self) -> None:
        for one in self.operations.values():
            one.settle()

    def _operation(self, verb: str, path: str) -> Json:
        if path not in self.operations:
            raise Refusal(404, "notFound", f"The resource '{path}' was not found")
        if verb == "wait":
            self.lock.release()
            try:
                time.sleep(max(0.0, min(self.operations[path].due - time.monotonic(), 120.0)))
            finally:
                self.lock.acquire()
            self.settle()
        return self.operations[path].record

    # Changes

    def _warn_of_routes(self) -> None:
        for route in self.named("routes").values():
            hop = self.objects.get(self.path(route["nextHopInstance"]))
            code = "NEXT_HOP_CANNOT_IP_FORWARD" if hop else "NEXT_HOP_INSTANCE_NOT_FOUND"
            route.pop("warnings", None)
            if hop is None or not hop.get("canIpForward"):
                route["warnings"] = [{"code": code, "message": code}]

    def _held(self, collection: str, one: Json) -> list[tuple[str, str]]:
        """Fields and paths of what a resource refers to."""
        return [
            (field, self.path(url))
            for field in HOLDS.get(collection, ())
            for url in dig(one, field)
            if isinstance(url, str) and url
        ]

    def _check_held(self, collection: str, one: Json) -> None:
        for field, path in self._held(collection, one):
            if path not in self.objects:
                is_target = field == "target"
                status, reason = (404, "notFound") if is_target else (400, "invalid")
                raise refuse(field, f"'{path}' does not exist", status, reason)

    def _holder(self, path: str) -> str:
        for other, one in self.objects.items():
            collection = other.split("/")[-2]
            if any(
                held == path and (collection, field) not in LOOSE
                for field, held in self._held(collection, one)
            ):
                return other
        return ""

    def _change(
        self, collection: str, verb: str, scope: str, at: str, body: Json, fault: Json | None
    ) -> Json:
        if verb == "insert":
            return self._insert(collection, scope, at, body, fault)
        one = self.get(at)
        if verb == "delete" and (holder := self._holder(at)):
            raise Refusal(400, IN_USE, f"'{at}' is already being used by '{holder}'")
        if fault:
            return self._start(scope, verb, at, fault=fault)
        if verb == "delete":
            return self._delete(scope, at)
        if verb in ("patch", "update"):
            self._update(collection, verb, one, body)
        elif verb == "setTarget":
            self._check_held(collection, body)
            one["target"] = self.link(self.path(body["target"]))
        elif collection == "targetPools":
            self._change_pool(verb, one, body)
        else:
            self._change_group(verb, at, one, body)
        return self._start(scope, verb, at)

    def _insert(self, collection: str, scope: str, at: str, body: Json, fault: Json | None) -> Json:
        path = f"{at}/{body.get('name', '')}"
        if not body.get("name"):
            raise Refusal(400, "required", "Required field 'resource.name' not specified")
        if path in self.objects:
            raise Refusal(409, "alreadyExists", f"The resource '{path}' already exists")
        self._check_held(collection, body)
        if fault:
            return self._start(scope, "insert", path, fault=fault)
        one = {key: deepcopy(value) for key, value in body.items() if value is not None}
        if collection in CHECKS:
            CHECKS[collection](one)
        if collection == "addresses":
            self._reserve(one)
        if collection == "forwardingRules":
            self._take_address(path, one)
            if one["loadBalancingScheme"] == "INTERNAL":
                self._check_network(one)
                one.setdefault("subnetwork", f"{scope}/subnetworks/default")
        for field in HOLDS.get(collection, ()):
            given = one.get(field)
            if isinstance(given, str):
                one[field] = self.link(self.path(given))
            elif isinstance(given, list):
                one[field] = [self.link(self.path(url)) for url in given]
        parts = scope.split("/")
        if len(parts) > 3:
            one[parts[2][:-1]] = self.link(scope)
        kind = collection.removesuffix("es" if collection == "addresses" else "s")
        made = self.put(path, kind, **one)
        self._warn_of_routes()
        return self._start(scope, "insert", path) | {"warnings": made.get("warnings", [])}

    def _check_network(self, rule: Json) -> None:
        networks = rule.get("network", ""), self.network_of(self.path(rule.get("subnetwork", "")))
        if len({*map(self.path, filter(None, networks))}) > 1:
            raise refuse("subnetwork", "it is not in the network of the rule")

    def _reserve(self, address: Json) -> None:
        kind = address.setdefault("addressType", "EXTERNAL")
        asked = address.get("address")
        for path, other in self.objects.items():
            if asked and is_in(path, "addresses") and other["address"] == asked:
                status, reason = (409, "ipInUse") if kind == "INTERNAL" else (400, "invalid")
                raise Refusal(status, reason, f"IP {asked} is already being used by {path}")
        address.setdefault("address", self.take(kind))
        address.setdefault("networkTier", "PREMIUM")
        ip = address["address"]
        network = self.network_of(self.path(address.get("subnetwork", "")))
        instances = self._instances_on(ip, network)
        users = [one["selfLink"] for one in (*self._rules_on(ip), *instances)]
        address |= {"status": "IN_USE", "users": users} if users else {"status": "RESERVED"}

    def _instances_on(self, ip: str, network: str = "") -> list[Json]:
        """An address in use by a machine can be reserved; in another network it is another one."""
        return [
            one
            for one in self.named("instances").values()
            for card in one.get("networkInterfaces", ())
            if card.get("networkIP") == ip and network in ("", card["network"])
        ]

    def _rules_on(self, ip: str) -> list[Json]:
        rules = self.named("forwardingRules").values()
        return [one for one in rules if one["IPAddress"] == ip]

    def _take_address(self, path: str, rule: Json) -> None:
        kind = rule["loadBalancingScheme"]
        ip = rule["IPAddress"] = rule.get("IPAddress") or self.take(kind)
        if not re.fullmatch(r"[\d.]+", ip) or self._instances_on(ip):
            raise refuse("IPAddress", f"'{ip}' is no address, or in use by an instance")
        for other in self._rules_on(ip):
            if other["IPProtocol"] == rule["IPProtocol"]:
                ports = [{*one.get("ports", [one.get("portRange")])} for one in (other, rule)]
                if ports[0] & ports[1] or other.get("allPorts") or rule.get("allPorts"):
                    said = f"IP_IN_USE_BY_ANOTHER_RESOURCE: {ip}"
                    raise Refusal(400, "ipInUseByAnotherResource", said)
        for address in self.named("addresses").values():
            if address["address"] == ip:
                if kind == "EXTERNAL" and address["networkTier"] != rule["networkTier"]:
                    raise refuse("networkTier", "the tier of the rule and of its address differ")
                users = [*address.get("users", ()), self.link(path)]
                address |= {"status": "IN_USE", "users": users}

    def _delete(self, scope: str, at: str) -> Json:
        for one in self.named("addresses").values():
            users = [user for user in one.get("users", ()) if user != self.link(at)]
            one |= {"users": users, "status": "IN_USE" if users else "RESERVED"}
        for group, members in self.members.items():
            if members.pop(at, None):
                self.objects[group]["size"] = len(members)
        self.members.pop(at, None)
        record = self._start(scope, "delete", at)
        del self.objects[at]
        return record

    def _update(self, collection: str, verb: str, one: Json, body: Json) -> None:
        given, new = body.get("fingerprint"), {**body}
        if collection == "backendServices" and verb == "update" and not given:
            raise Refusal(400, "required", "Required field 'resource.fingerprint' not specified")
        if given and given != one.get("fingerprint", given):
            raise Refusal(412, "conditionNotMet", "Fingerprint mismatch")
        self._check_held(collection, new)
        kept = {key: one[key] for key in ONCE_ONLY if key in one}
        new = {**new, **kept} if verb == "update" else {**one, **new, **kept}
        new.pop("fingerprint", None)
        if collection in CHECKS:
            CHECKS[collection](new)
        one.clear()
        one |= new

    def _change_pool(self, verb: str, pool: Json, body: Json) -> None:
        key, inner = ("instances", "instance")
        if "HealthCheck" in verb:
            key, inner = "healthChecks", "healthCheck"
        have = pool.setdefault(key, [])
        for reference in body.get(key, ()):
            path = self.path(reference[inner])
            if verb.startswith("add"):
                self.get(path)
                have += [self.link(path)] * (self.link(path) not in have)
            elif self.link(path) in have:
                have.remove(self.link(path))

    def _change_group(self, verb: str, at: str, group: Json, body: Json) -> None:
        have, zone = self.members.setdefault(at, {}), at.split("/")[3]
        paths = [self.path(one["instance"]) for one in body.get("instances", ())]
        for path in paths:
            if verb == "addInstances":
                self.get(path)
                if path.split("/")[3] != zone:
                    raise Refusal(400, "invalid", f"Instance '{path}' is not in zone {zone}")
                if path in have:
                    raise Refusal(400, "memberAlreadyExists", f"'{path}' is already a member")
            elif path not in have:
                raise Refusal(400, "memberNotFound", f"'{path}' is not a member of '{at}'")
        for path in paths:
            if verb == "addInstances":
                have[path] = {"instance": self.link(path), "status": "RUNNING"}
            else:
                have.pop(path)
        group["size"] = len(have)


def is_under(path: str, collection: str) -> bool:
    return path.startswith(f"{collection}/") and "/" not in path[len(collection) + 1 :]


_TERM = re.compile(
    r"\(?\s*([\w.]+)\s*(eq|ne|!=|=|:)\s*"
    r"(\"[^\"]*\"|'[^']*'|[^\s()]*(?:\([^()]*\)[^\s()]*)*)\s*\)?"
)


def matches(query: Mapping[str, Sequence[str]], one: Json) -> bool:
    """Whether a filter keeps a resource; `eq` and `ne` take a regular expression."""
    text = query.get("filter", [""])[0]
    terms = _TERM.findall(text)
    if text and not terms:
        raise Refusal(400, "invalid", f"Invalid value for field 'filter': '{text}'.")
    for field, operator, value in terms:
        found, value = str(next(dig(one, field), "")), value.strip("\"'")
        is_same = bool(re.fullmatch(value, found)) if operator in ("eq", "ne") else found == value
        if (value in found if operator == ":" else is_same) == (operator in ("ne", "!=")):
            return False
    return True
