"""The one place where a worker writes to Kubernetes."""

import asyncio
import logging
import random
import re
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import assert_never

import orjson

from ccm.bus.sockets import Permission
from ccm.decide.backoff import Backoff
from ccm.decide.budget import Allowances
from ccm.errors import Contested, KubernetesError, Unreachable
from ccm.kube.client import JSON_PATCH, METADATA_ONLY, STRATEGIC_PATCH, Kube, about
from ccm.model.objects import Json, expect, mapping, objects, resource_version, text
from ccm.model.writes import Delete, Merge, Patch, Write

log = logging.getLogger(__name__)

WRITE_TIMEOUT = 30.0  # seconds a write may take at the most
REVERTS = 3  # of one field in a row, after which its next write has to wait
REVERTED = Backoff(first=1.0, most=300.0)
CALM = 60.0  # seconds beyond such a wait without another revert, after which it is over
WRITES, WRITE_PAUSE = 30, 5.0
"""So many writes of a field at once, then one in so many seconds: what we write may follow what a
kubelet or a tenant changes as often as they like."""
FIELDS_KEPT = 10_000  # the last written ones
DELETIONS = 5  # tries of one, of an object that changes each time
OUR_MANAGER = "ccm-supervisor"  # what the API server makes of our user agent
_TIMES = re.compile(rb'"last\w*Time":"[^"]*"')

ObjectCheck = Callable[[Json], None]
"""What prevents the deletion of an object by raising `Outdated`."""


@dataclass(slots=True)
class _Field:
    """Our last write of a field, and how often in a row another client set it back."""

    content: int
    at: float
    reverts: int = 0
    is_counted: bool = False  # the revert since that write
    due: float = 0.0
    writer: str = ""

    @property
    def pause(self) -> float:
        return REVERTED.delay(self.reverts - REVERTS + 1, 0.0) if self.reverts >= REVERTS else 0.0

    def is_repeated_by(self, content: int, now: float) -> bool:
        """Whether the same write comes again so soon that someone must have reverted it."""
        return content == self.content and now - self.at <= self.pause + CALM


@dataclass
class Performer:
    """Sends writes while this process leads; the client's fence checks it as the bytes leave.

    `grace` is how many seconds after the end of the permission the lease still keeps others from
    acting: a write that has left by then may still be answered, so no write may take longer.

    A field that another client sets back again and again is written with growing pauses.
    """

    kube: Kube
    permission: Permission
    grace: float
    _fields: OrderedDict[tuple[str, ...], _Field] = field(default_factory=OrderedDict)
    _allowances: Allowances[tuple[str, ...]] = field(
        default_factory=lambda: Allowances(WRITES, WRITE_PAUSE, FIELDS_KEPT)
    )

    async def perform(
        self, write: Write, check: ObjectCheck = lambda _: None, since: int = 0
    ) -> Json:
        """The API server's answer, for a patch the object, or its metadata.

        Raises `NotLeading`, and `Contested` while the write has to wait. A deletion cannot test
        what it was decided on: `check` is asked about the object as it is, and raises `Outdated`.
        An answer of the version `since`, or one before, was kept by a proxy: `Unreachable`.
        """
        timeout = self._timeout
        match write:
            case Patch(path, operations, merge, cannot_wait):
                changed = [each for each in operations if each["op"] != "test"]
                paths = [text(each["path"]) for each in changed]
                # Annotations that are written with a status make it no other field.
                where = path, *([item for item in paths if item.startswith("/status/")] or paths)
                async with self._reverts_counted(where, changed, cannot_wait):
                    answer = await self._merged(path, merge, timeout) if merge else None
                    if not answer:
                        answer = await self.kube.patch(path, JSON_PATCH, operations, timeout)
                    return _proof(path, answer, since)
            case Merge(path, body):
                async with self._reverts_counted((path, *_leading_keys(body)), body):
                    answer = await self.kube.patch(
                        path, STRATEGIC_PATCH, body, timeout, METADATA_ONLY
                    )
                    return _proof(path, answer, since)
            case Delete(path, uid):
                return await self._delete(path, uid, check)
            case _:
                assert_never(write)

    @property
    def _timeout(self) -> float:
        return min(WRITE_TIMEOUT, max(self.permission.seconds_left, 0.0) + self.grace)

    async def _delete(self, path: str, uid: str, check: ObjectCheck) -> Json:
        """Delete an object in the version that `check` was asked about, and in no later one.

        What stands before the API server may keep a request, and deliver it when all is different.
        A patch that changes nothing reads the object: to get it is another right.
        """
        same, tries = [expect("/metadata/uid", uid)], DELETIONS
        while True:
            found = about(path, await self.kube.patch(path, JSON_PATCH, same, self._timeout))
            version = text(mapping(found.get("metadata")).get("resourceVersion"))
            body = {"preconditions": {"uid": uid, "resourceVersion": version}}
            try:
                return await self.kube.request(
                    "DELETE", path, body, timeout=self._timeout, check=partial(check, found)
                )
            except KubernetesError as error:
                tries -= 1
                if error.status != 409 or not tries:
                    raise

    async def _merged(self, path: str, body: Json, timeout: float) -> Json | None:
        """The metadata of the answer; None when there is another version of the object by now."""
        try:
            return await self.kube.patch(path, STRATEGIC_PATCH, body, timeout, METADATA_ONLY)
        except KubernetesError as error:
            if error.status != 409:
                raise
            return None

    @asynccontextmanager
    async def _reverts_counted(
        self, where: tuple[str, ...], change: object, cannot_wait: bool = False
    ) -> AsyncIterator[None]:
        """Around a write; raises `Contested` while it has to wait."""
        content, now = hash(_TIMES.sub(b"", orjson.dumps(change))), time.monotonic()
        known = self._fields.get(where)
        if known and known.is_repeated_by(content, now):
            if not known.is_counted:
                known.is_counted, known.reverts = True, known.reverts + 1
                known.due = now + known.pause * random.uniform(1.0, 1.2)
                if known.reverts == REVERTS:
                    await self._report(where, known)
            if (left := known.due - time.monotonic()) > 0:
                who = f"{known.writer!r}, by managedFields," if known.writer else "another client"
                raise Contested(f"{who} sets {where[1]} back whenever it is written", left)
        else:
            known = _Field(content, now)
        if not cannot_wait and (pause := self._allowances.take(where, now)):
            why = f"{where[1]} changes again and again: it is written later"
            raise Contested(why, pause)
        yield
        known.at, known.is_counted = time.monotonic(), False
        self._fields[where] = known
        self._fields.move_to_end(where)
        if len(self._fields) > FIELDS_KEPT:
            self._fields.popitem(last=False)

    async def _report(self, where: tuple[str, ...], known: _Field) -> None:
        """Log who it is, and later that it is over."""
        known.writer = await self._writer(where)
        name = where[0].removesuffix("/status")
        extra = {"object": name, "field": where[1], "writer": known.writer or "unknown"}
        log.warning("writes reverted", extra=extra)

        def report_end() -> None:
            left = known.at + known.pause + CALM - time.monotonic()
            if left > 0 and self._fields.get(where) is known:
                asyncio.get_running_loop().call_later(left, report_end)
            else:
                log.info("writes no longer reverted", extra=extra)

        report_end()

    async def _writer(self, where: Sequence[str]) -> str:
        """Who else wrote the field last, by `managedFields`; empty when that is unknown."""
        try:
            raw = await self.kube.get(where[0].removesuffix("/status"))
        except (KubernetesError, Unreachable):
            return ""
        entries = objects(mapping(raw.get("metadata")).get("managedFields"))
        others = [
            entry for entry in entries if not text(entry.get("manager")).startswith(OUR_MANAGER)
        ]
        owners = [item for item in others if _owns(mapping(item.get("fieldsV1")), where[1])]
        newest = max(owners or others, key=lambda item: text(item.get("time")), default={})
        return text(newest.get("manager"))


def _proof(path: str, answer: Json, since: int) -> Json:
    """The answer to a write of the object, which it has changed."""
    if 0 < resource_version(about(path, answer)) <= since:
        raise Unreachable(f"{path}: the answer to our write is of before it")
    return answer


def _leading_keys(body: Json) -> Iterator[str]:
    """What a merge patch changes, as paths of two parts."""
    for first, value in body.items():
        for second in mapping(value):
            if (first, second) not in (("metadata", "uid"), ("metadata", "resourceVersion")):
                yield f"/{first}/{second}"


def _owns(fields: Mapping[str, object], path: str) -> bool:
    """Whether `fieldsV1` has the first two parts of the path."""
    first, second, *_ = [*path.split("/")[1:], ""]
    return f"f:{second}" in mapping(fields.get(f"f:{first}"))
