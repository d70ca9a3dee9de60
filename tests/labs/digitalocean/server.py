"""DigitalOcean's API in a thread of its own; the state behind it is ours, see README.md."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode
from uuid import UUID, uuid4

from aiohttp import web

from tests.labs.digitalocean.contract import Contract
from tests.labs.digitalocean.records import Json, droplet, error, load_balancer, volume, vpc
from tests.support.deadlines import timeout

TOKEN, OTHER_TOKEN = "dop_v1_cluster", "dop_v1_another-team"
REGION, VPC = "nyc3", "760e09ef-dc84-11e8-981e-3cfdfeaae000"
CREATED = "2026-08-07T12:00:00Z"
LIMIT = 5000
BUSY = "Load Balancer can't be updated while it processes previous actions"
MOST_RULES, MOST_SOURCES = 50, 1000
"""Of a firewall in both directions, and of a rule, by its page of limits."""
SIZES = {"lb-small": 1, "lb-medium": 3, "lb-large": 6}


class Refusal(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, kind: str, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status, self.kind, self.headers = status, kind, headers


class DigitalOcean:
    """One team's account. `violations` are requests and answers that break the contract.

    A load balancer is `new` for `reads_until_active` answers about it. `fault` is how every call
    fails.
    """

    def __init__(self) -> None:
        self.contract = Contract()
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._runner: web.AppRunner | None = None
        self.reset()

    def reset(self) -> None:
        """An empty account."""
        self.tokens = {TOKEN: "team", OTHER_TOKEN: "another"}
        self.droplets: dict[int, Json] = {}
        self.gpus: set[int] = set()
        self.balancers: dict[str, Json] = {}
        self.certificates: dict[str, Json] = {}
        self.firewalls: dict[str, Json] = {}
        self.volumes: dict[str, Json] = {}
        self.tags: set[str] = set()
        self.requests: list[tuple[str, str, dict[str, str], Any]] = []
        self.violations: list[str] = []
        self.fault: dict[str, Any] = {}
        self.delay = 0.0
        self.remaining: int | None = None
        self.reset_in = 600.0
        self.balancer_page_limit = 200
        self.reads_until_active = 1
        self.shows_tags = True
        self.denied = "nothing"  # the path that the token has no scope for
        self.counts_all = False  # in totals of lists by names
        self.on_page: Any = None
        self.largest_balancers = 100
        self._new: dict[str, int] = {}
        self._numbers = iter(range(100_001, 10_000_000))

    # For tests

    def add_droplet(self, name: str, **more: Any) -> Json:
        """A droplet that runs, in the VPC, with a public and a private address."""
        number = more.pop("id", None) or next(self._numbers)
        is_gpu = more.pop("is_gpu", False)
        self.droplets[number] = droplet(number, name, REGION, VPC) | more
        if is_gpu:
            self.gpus.add(number)
        return self.droplets[number]

    def add_balancer(self, **more: Any) -> Json:
        """A load balancer that someone made."""
        rule = {"entry_protocol": "tcp", "entry_port": 80}
        rule |= {"target_protocol": "tcp", "target_port": 80}
        usual = {"region": REGION, "forwarding_rules": [rule]}
        made = load_balancer(str(uuid4()), usual | more, self._address())
        self.balancers[made["id"]] = made | {"status": "active"}
        return self.balancers[made["id"]]

    def add_certificate(self, name: str, kind: str = "custom") -> str:
        made = {"id": str(uuid4()), "name": name, "type": kind, "state": "verified"}
        self.certificates[made["id"]] = {**made, "not_after": CREATED, "created_at": CREATED}
        return made["id"]

    def add_volume(self, region: str = REGION) -> str:
        made = volume(str(uuid4()), region)
        self.volumes[made["id"]] = made
        return str(made["id"])

    def writes(self) -> list[str]:
        """Methods and paths of all requests that change something."""
        return [f"{method} {path}" for method, path, _, _ in self.requests if method != "GET"]

    def reads(self, path: str = "") -> list[str]:
        return [one for method, one, _, _ in self.requests if method == "GET" and path in one]

    def bodies(self, method: str, part: str) -> list[Any]:
        return [body for how, path, _, body in self.requests if how == method and part in path]

    @contextmanager
    def running(self) -> Iterator["DigitalOcean"]:
        """Serve until the end of the block."""
        thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        thread.start()

        def run(work: Any) -> None:
            asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout())

        try:
            run(self._start())
            yield self
        finally:
            run(self._stop())
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join(timeout())
            self._loop.close()

    async def _start(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def _stop(self) -> None:
        if self._runner:
            await self._runner.cleanup()

    # Serving

    async def _serve(self, request: web.Request) -> web.Response:
        body = await request.json() if request.can_read_body else None
        query = dict(request.query)
        self.requests.append((request.method, request.path, query, body))
        if self.delay or self.fault.get("delay"):
            await asyncio.sleep(self.fault.get("delay", self.delay))
        if self.fault:
            return web.Response(
                status=self.fault["status"],
                text=self.fault.get("text", "{}"),
                headers=self.fault.get("headers"),
            )
        try:
            team = self._team(request)
            self._check_rate()
            wrong = list(self.contract.faults_of_request(request.method, request.path, query, body))
            if wrong:
                self.violations += wrong
                raise Refusal(422, "unprocessable_entity", "; ".join(wrong))
            status, answer = self._answer(request, query, body, team)
            headers = dict[str, str]()
        except Refusal as refusal:
            status, answer = refusal.status, error(refusal.kind, str(refusal))
            headers = refusal.headers
        self.violations += self.contract.faults_of_answer(
            request.method, request.path, status, answer
        )
        headers |= self._limits()
        if answer is None:
            return web.Response(status=status, headers=headers)
        return web.json_response(answer, status=status, headers=headers)

    def _team(self, request: web.Request) -> str:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if token not in self.tokens:
            raise Refusal(401, "unauthorized", "Unable to authenticate you")
        if request.path.startswith(self.denied):
            raise Refusal(403, "forbidden", "You are missing the required permission")
        return self.tokens[token]

    def _check_rate(self) -> None:
        if self.remaining == 0:
            raise Refusal(429, "too_many_requests", "API rate limit exceeded")
        if self.remaining:
            self.remaining -= 1

    def _limits(self) -> dict[str, str]:
        left = LIMIT - len(self.requests) if self.remaining is None else self.remaining
        reset = str(int(time.time() + self.reset_in))
        return {
            "ratelimit-limit": str(LIMIT),
            "ratelimit-remaining": str(left),
            "ratelimit-reset": reset,
        }

    def _answer(
        self, request: web.Request, query: dict[str, str], body: Any, team: str
    ) -> tuple[int, Any]:
        kind, *rest = request.path.removeprefix("/v2/").split("/")
        handler = getattr(self, f"_{request.method.lower()}_{kind}", None)
        if handler is None:
            raise Refusal(404, "not_found", "The resource you requested could not be found.")
        if team != "team":
            return self._as_foreign(request, kind, rest)
        if request.method == "GET" and not rest:
            names = request.query.getall("names", [])
            listed = handler("", query)
            if names:
                listed = [one for one in listed if one["name"] in names]
            page = self._page(request, kind, listed)
            if self.counts_all:
                page["meta"] = {"total": len(self.balancers)}
            return 200, page
        answer: tuple[int, Any] = (
            (200, handler(rest[0], query)) if request.method == "GET" else handler(rest, body)
        )
        return answer

    def _as_foreign(self, request: web.Request, kind: str, rest: list[str]) -> tuple[int, Any]:
        """To a token of another team there is nothing."""
        if request.method == "GET" and not rest:
            return 200, self._page(request, kind, [])
        raise Refusal(404, "not_found", "The resource you were accessing could not be found.")

    def _page(self, request: web.Request, kind: str, listed: list[Json]) -> Json:
        limit = self.balancer_page_limit if kind == "load_balancers" else 200
        size = min(int(request.query.get("per_page", 20)), limit)
        page = int(request.query.get("page", 1))
        if self.on_page:
            self.on_page(kind, page)
        links: Json = {}
        if page * size < len(listed):
            query = urlencode({"page": page + 1, "per_page": size})
            links = {"pages": {"next": f"https://api.digitalocean.com/v2/{kind}?{query}"}}
        shown = listed[(page - 1) * size : page * size]
        return {kind: shown, "links": links, "meta": {"total": len(listed)}}

    # Reading

    def _get_droplets(self, number: str, query: dict[str, str]) -> Any:
        if not number:
            wants_gpus = query.get("type") == "gpus"
            return [one for key, one in self.droplets.items() if (key in self.gpus) is wants_gpus]
        return {"droplet": _found(self.droplets, int(number))}

    def _get_load_balancers(self, balancer_id: str, query: dict[str, str]) -> Any:
        shown = [balancer_id] if balancer_id else list(self.balancers)
        for one in shown:
            if one in self._new:
                self._new[one] -= 1
                if self._new[one] <= 0:
                    self._activate(one)
        if not balancer_id:
            return [self._shown(one) for one in self.balancers.values()]
        return {"load_balancer": self._shown(_found(self.balancers, balancer_id))}

    def _shown(self, record: Json) -> Json:
        hidden = () if self.shows_tags else ("tags",)
        return {key: value for key, value in record.items() if key not in hidden}

    def _get_certificates(self, certificate_id: str, query: dict[str, str]) -> Any:
        if not certificate_id:
            name = query.get("name")
            return [one for one in self.certificates.values() if name in (None, one["name"])]
        return {"certificate": _found(self.certificates, certificate_id)}

    def _get_firewalls(self, firewall_id: str, query: dict[str, str]) -> Any:
        return list(self.firewalls.values())

    def _get_volumes(self, volume_id: str, query: dict[str, str]) -> Any:
        if not volume_id:
            return list(self.volumes.values())
        return {"volume": _found(self.volumes, volume_id)}

    def _get_vpcs(self, vpc_id: str, query: dict[str, str]) -> Any:
        return {"vpc": _found({VPC: vpc(VPC, REGION)}, vpc_id)}

    # Writing

    def _post_load_balancers(self, rest: list[str], body: Json) -> tuple[int, Any]:
        if len(self.balancers) >= self.largest_balancers:
            message = "load balancer limit exceeded: the account's limit is reached"
            raise Refusal(422, "unprocessable_entity", message)
        self._check_balancer("", body)
        made = load_balancer(str(uuid4()), body, "")
        self.balancers[made["id"]] = made
        self._new[made["id"]] = self.reads_until_active
        return 202, {"load_balancer": self._shown(made)}

    def _put_load_balancers(self, rest: list[str], body: Json) -> tuple[int, Any]:
        there = _found(self.balancers, rest[0])
        self._check_idle(there)
        self._check_balancer(rest[0], body)
        for key in ("type", "network", "network_stack", "vpc_uuid"):
            if body.get(key, there[key]) != there[key]:
                raise Refusal(422, "unprocessable_entity", f"{key} cannot be changed")
        made = load_balancer(rest[0], {**body, "tags": there["tags"]}, there["ip"])
        self.balancers[rest[0]] = {**made, "ipv6": there["ipv6"], "status": "active"}
        return 200, {"load_balancer": self._shown(self.balancers[rest[0]])}

    def _delete_load_balancers(self, rest: list[str], body: None) -> tuple[int, Any]:
        self._check_idle(_found(self.balancers, rest[0]))
        del self.balancers[rest[0]]
        return 204, None

    def _check_idle(self, record: Json) -> None:
        if record["status"] == "new":
            raise Refusal(403, "forbidden", BUSY)

    def _check_balancer(self, balancer_id: str, body: Json) -> None:
        names = {one["name"] for key, one in self.balancers.items() if key != balancer_id}
        if body["name"] in names:
            raise Refusal(422, "unprocessable_entity", "name is not unique")
        for number in body["droplet_ids"]:
            if number not in self.droplets:
                message = f"target droplet {number} could not be found"
                raise Refusal(422, "unprocessable_entity", message)
        if body.get("vpc_uuid", VPC) != VPC:
            raise Refusal(422, "unprocessable_entity", "the VPC could not be found in the region")

    def _activate(self, balancer_id: str) -> None:
        del self._new[balancer_id]
        record = self.balancers.get(balancer_id)
        if record:
            has_ipv6 = record["network_stack"] == "DUALSTACK"
            ipv6 = f"2604:a880::{len(self.requests):x}" if has_ipv6 else ""
            record |= {"status": "active", "ip": self._address(), "ipv6": ipv6}

    def _address(self) -> str:
        number = next(self._numbers) - 100_000
        return f"203.0.{113 + number // 250}.{number % 250 + 1}"

    def _check_rules(self, body: Json) -> None:
        if len(body["inbound_rules"]) + len(body["outbound_rules"]) > MOST_RULES:
            raise Refusal(422, "unprocessable_entity", f"more than {MOST_RULES} rules")
        for rule in body["inbound_rules"]:
            if len(rule["sources"].get("addresses", ())) > MOST_SOURCES:
                raise Refusal(422, "unprocessable_entity", f"more than {MOST_SOURCES} sources")
            for balancer_id in rule["sources"].get("load_balancer_uids", ()):
                if balancer_id not in self.balancers:
                    message = f"load balancer {balancer_id} could not be found"
                    raise Refusal(422, "unprocessable_entity", message)

    def _post_firewalls(self, rest: list[str], body: Json) -> tuple[int, Any]:
        self._check_rules(body)
        made = {"id": str(uuid4()), "status": "succeeded", "created_at": CREATED, **body}
        self.firewalls[made["id"]] = made | {"pending_changes": []}
        return 202, {"firewall": self.firewalls[made["id"]]}

    def _put_firewalls(self, rest: list[str], body: Json) -> tuple[int, Any]:
        self._check_rules(body)
        _found(self.firewalls, rest[0]).update(body)
        return 200, {"firewall": self.firewalls[rest[0]]}

    def _post_tags(self, rest: list[str], body: Json) -> tuple[int, Any]:
        if not rest:
            self.tags.add(body["name"])
            return 201, {"tag": {"name": body["name"], "resources": {"count": 0}}}
        tag = rest[0].replace("%3A", ":")
        if tag not in self.tags:
            raise Refusal(404, "not_found", "The tag you requested could not be found.")
        for one in body["resources"]:
            UUID(one["resource_id"])
            self.balancers[one["resource_id"]]["tags"].append(tag)
        return 204, None


def _found(records: dict[Any, Json], key: Any) -> Json:
    if key not in records:
        message = "The resource you were accessing could not be found."
        raise Refusal(404, "not_found", message)
    return records[key]
