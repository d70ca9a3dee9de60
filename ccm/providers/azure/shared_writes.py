"""A resource that several change, such as a route table: changes that wait are written together.

Resource Manager takes a resource whole: what others have in it is kept, and its ETag shows when
they changed it meanwhile. A second write while one goes on is refused.
"""

import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field

from ccm.cloud.shared_read import SharedLock
from ccm.errors import CloudError, NoRoom, NotFound, Refused, RetryAfter
from ccm.model.objects import Json, objects, text
from ccm.providers.azure.api import BUSY_RETRY, RACE_RETRY, AzureApi, PreconditionFailed
from ccm.providers.azure.ids import key_of, properties_of

MOST_READS = 4  # of a resource that others keep changing, for one write
ALONE = 300.0  # seconds for which who had a write of others refused is in no such write

Edit = Callable[[Json], None]
"""Makes a resource, in place, what one caller wants; raises `CloudError` to leave it as it is."""


@dataclass(eq=False)
class _Waiting:
    edit: Edit
    known: Json | None = None
    owner: str = ""
    result: Json | None = None
    error: CloudError | None = None
    is_done: bool = False
    changes: bool = field(default=False)

    def end(self, result: Json | None, error: CloudError | None = None) -> None:
        self.result, self.error, self.is_done = result, error, True


class SharedResource:
    """One resource by its path; `noun` names it in operations, `empty` is what a new one is.

    It is deleted in place of a write that would leave nothing which `is_used`. Others wait for its
    `lock` while one writes.
    """

    def __init__(
        self,
        api: AzureApi,
        noun: str,
        path: str,
        empty: Json | None,
        is_used: Callable[[Json], bool] = lambda _: True,
        lock: SharedLock | None = None,
    ) -> None:
        self._api, self._noun, self.path = api, noun, path
        self._empty, self._is_used = empty, is_used
        self._lock, self._waiting = lock or SharedLock(), list[_Waiting]()
        self._alone = dict[str, float]()  # owners, until when

    async def read(self) -> Json | None:
        """What there is; None when it is not."""
        try:
            found = await self._api.get(f"Get{self._noun}", self.path)
        except NotFound:
            return None
        if key_of(found) != self.path.lower():
            raise CloudError(f"Get{self._noun}: the answer is not about {self.path}")
        return found

    async def change(
        self, edit: Edit, known: Json | None = None, *, owner: str = ""
    ) -> Json | None:
        """The resource after `edit`, and after those of other callers that waited as well.

        `known` is the resource as the caller has read it, whose ETag shows whether it is old. An
        `owner` of whom Azure has refused a change, with all others in the write, is in no write of
        others for a while. Writes nothing when nothing changes. None when there is none, or no
        longer.
        """
        own, now = _Waiting(edit, known, owner), time.monotonic()
        self._alone = {key: until for key, until in self._alone.items() if until > now}
        is_alone = owner in self._alone
        if not is_alone:
            self._waiting.append(own)
        try:
            async with self._lock.held():
                if is_alone:
                    await self._write_now([own])
                if not own.is_done:
                    batch, self._waiting = self._waiting, []
                    try:
                        await self._write_now(batch)
                    finally:  # those of a caller who was cancelled, for the next one
                        self._waiting = [item for item in batch if not item.is_done] + self._waiting
        finally:  # who was cancelled is not written later
            self._waiting = [item for item in self._waiting if item is not own]
        if own.error:
            raise own.error
        return own.result

    async def _write_now(self, batch: list[_Waiting]) -> None:
        await self._write(batch)
        written = [item for item in batch if item.changes]
        refused = {item.owner for item in written if isinstance(item.error, Refused)} - {""}
        if not all(item.error for item in written):
            self._alone |= dict.fromkeys(refused, time.monotonic() + ALONE)

    async def _write(self, batch: list[_Waiting]) -> None:
        for left in reversed(range(MOST_READS)):
            try:
                await self._write_once([item for item in batch if not item.is_done])
            except PreconditionFailed as error:
                if not left:
                    _end_all(batch, error)
            except (NoRoom, Refused) as error:
                pending = [item for item in batch if item.changes and not item.is_done]
                middle = len(pending) // 2  # one of them is refused: the others do not suffer
                for some in (pending[:middle], pending[middle:]) if middle else ():
                    await self._write(some)
                _end_all(batch, error)
            except CloudError as error:
                _end_all(batch, error)
            if all(item.is_done for item in batch):
                return

    async def _write_once(self, batch: list[_Waiting]) -> None:
        known = batch[0].known if len(batch) == 1 else None
        batch[0].known = None  # another try reads it
        current = known or await self.read()
        wanted = deepcopy(current) if current is not None else deepcopy(self._empty)
        if wanted is None:
            raise CloudError(f"{self._noun} {self.path} is not there")
        for item in batch:
            before = deepcopy(wanted)
            try:
                item.edit(wanted)
            except CloudError as error:
                item.end(None, error)
                wanted = before
            item.changes = wanted != before
        pending = [item for item in batch if not item.is_done]
        await self._verify(current, wanted)
        state = text(properties_of(current or {}).get("provisioningState"))
        if wanted == (current or self._empty) and (state != "Failed" or not pending):
            result = current
        elif state in ("Updating", "Deleting"):
            raise RetryAfter(f"{self._noun} {self.path} is {state}", BUSY_RETRY)
        elif not self._is_used(wanted):
            await self._api.delete(f"Delete{self._noun}", self.path)
            result = None
        else:
            etag = text(current.get("etag")) if current else ""
            result = await self._api.put(f"Put{self._noun}", self.path, wanted, etag)
            if properties_of(result).get("provisioningState") != "Succeeded":
                result = await self.read()
        for item in pending:
            item.end(result)

    async def _verify(self, current: Json | None, wanted: Json) -> None:
        """Raise where the write may take away what others have: entries that are not understood,
        or, where it is empty or not there, what another kind of read has.
        """
        before, empty = properties_of(current or {}), list[str]()
        for key, value in properties_of(wanted).items():
            known = before.get(key, [])
            if isinstance(value, list) and value != known:
                if objects(known) != known:
                    raise CloudError(f"{self._noun} {self.path}: {key} is not understood")
                empty += [] if known else [key]
        if current is not None and not (empty and before):
            return
        for item in await self._api.list(f"List{self._noun}s", self.path.rpartition("/")[0]):
            is_same = key_of(item) == self.path.lower()
            if is_same and (current is None or any(map(properties_of(item).get, empty))):
                raise RetryAfter(f"{self._noun} {self.path} is listed otherwise", RACE_RETRY)


def _end_all(batch: list[_Waiting], error: CloudError) -> None:
    for item in batch:
        if not item.is_done:
            item.end(None, error)
