"""A resource that several change, such as a route table: changes that wait are written together.

Resource Manager takes a resource whole: what others have in it is kept, and its ETag shows when
they changed it meanwhile. A second write while one goes on is refused.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ccm.cloud.shared_read import SharedLock
from ccm.cloud.shared_write import PendingChange, SharedWrite, end_all
from ccm.errors import CloudError, Denied, NoRoom, NotFound, Refused, RetryAfter
from ccm.model.objects import Json, copy_of, objects, text
from ccm.providers.azure.api import BUSY_RETRY, RACE_RETRY, AzureApi, PreconditionFailed
from ccm.providers.azure.ids import key_of, properties_of

MOST_READS = 4  # of a resource that others keep changing, for one write
ALONE = 300.0  # seconds for which who had a write of others refused is in no such write

Edit = Callable[[Json], None]
"""Makes a resource, in place, what one caller wants; raises `CloudError` to leave it as it is."""


class Missing(CloudError):
    """What is to be changed is not there, or no longer."""


@dataclass(slots=True)
class _Change:
    edit: Edit
    known: Json | None
    owner: str
    is_effective: bool = False


Pending = Sequence[PendingChange[_Change]]


class SharedResource:
    """One resource by its path; `noun` names it in operations, `empty` is what a new one is.

    It is deleted in place of a write that would leave nothing which `is_used`. Others wait for its
    `lock` while one writes. For one write alone, which compares itself, it is not `is_kept`.
    """

    def __init__(
        self,
        api: AzureApi,
        noun: str,
        path: str,
        empty: Json | None,
        is_used: Callable[[Json], bool] = lambda _: True,
        lock: SharedLock | None = None,
        *,
        is_kept: bool = True,
    ) -> None:
        self._api, self._noun, self.path, self._is_kept = api, noun, path, is_kept
        self._empty, self._is_used = empty, is_used
        self._shared = SharedWrite(self._write_now, lock)
        self._alone = dict[str, float]()  # owners, until when
        self._etag, self._entries = "", set[tuple[str, str]]()  # as known last
        self._confirmed: Json | None = None  # what two answers had, or the last write gave

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
        now = time.monotonic()
        self._alone = {key: until for key, until in self._alone.items() if until > now}
        is_alone = owner in self._alone
        done: Json | None = await self._shared.do(_Change(edit, known, owner), is_alone=is_alone)
        return done

    async def _write_now(self, batch: Pending) -> None:
        await self._write(batch)
        written = [item for item in batch if item.change.is_effective]
        refused = {item.change.owner for item in written if isinstance(item.error, Refused)} - {""}
        if not all(item.error for item in written):
            self._alone |= dict.fromkeys(refused, time.monotonic() + ALONE)

    async def _write(self, batch: Pending) -> None:
        for left in reversed(range(MOST_READS)):
            try:
                await self._write_once([item for item in batch if not item.is_done])
            except PreconditionFailed as error:
                if not left:
                    end_all(batch, error=error)
            except (NoRoom, Refused) as error:
                pending = [item for item in batch if item.change.is_effective and not item.is_done]
                middle = len(pending) // 2  # one of them is refused: the others do not suffer
                for some in (pending[:middle], pending[middle:]) if middle else ():
                    await self._write(some)
                end_all(batch, error=error)
            except CloudError as error:
                end_all(batch, error=error)
            if all(item.is_done for item in batch):
                return

    async def _write_once(self, batch: Pending) -> None:
        known = batch[0].change.known if len(batch) == 1 else None
        batch[0].change.known = None  # another try reads it
        current, before = known or await self.read(), self._etag
        if current is not None:
            await self._learn(current)
        if (base := current if current is not None else self._empty) is None:
            raise Missing(f"{self._noun} {self.path} is not there")
        wanted = copy_of(base)
        for item in batch:
            await asyncio.sleep(0)  # each may take a moment: one in a turn of the loop
            unchanged = copy_of(wanted)
            try:
                item.change.edit(wanted)
            except CloudError as error:
                end_all([item], error=error)
                wanted = unchanged
            item.change.is_effective = wanted != unchanged
        pending = [item for item in batch if not item.is_done]
        await self._verify(current, wanted, is_known=not self._is_kept or before == self._etag)
        if current is not None and wanted != current and self._is_kept:
            await self._confirm(current)
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
            is_it = key_of(result) == self.path.lower() and _entries(wanted) <= _entries(result)
            if is_it and properties_of(result).get("provisioningState") == "Succeeded":
                await self._learn(result)
            else:
                result = await self.read()
            self._confirmed = copy_of(result) if result else None
        end_all(pending, result)

    async def _confirm(self, current: Json) -> None:
        """Raise where another read has other contents of the same ETag: one may mix up parts."""
        if current == self._confirmed:
            return
        again = await self.read() or {}
        if again != current and again.get("etag") == current.get("etag"):
            why = f"{self._noun} {self.path}: two answers differ"
            raise PreconditionFailed(why, RACE_RETRY)
        self._confirmed = copy_of(current)

    async def _learn(self, found: Json) -> None:
        """Keep which entries its ETag stands for; raises for an answer that lacks some of them.

        Unless another kind of read lacks them as well: what was known may have been made up.
        """
        etag, entries = text(found.get("etag")), _entries(found)
        if etag == self._etag and (lacking := self._entries - entries):
            listed = await self.listed() or {}
            if text(listed.get("etag")) != etag or lacking & _entries(listed):
                why = f"{self._noun} {self.path}: the answer lacks {len(lacking)} of its ETag"
                raise PreconditionFailed(why, RACE_RETRY)
        self._etag, self._entries = etag, entries

    async def listed(self) -> Json | None:
        """What there is, by another kind of read."""
        listed = await self._api.list(f"List{self._noun}s", self.path.rpartition("/")[0])
        return next((item for item in listed if key_of(item) == self.path.lower()), None)

    async def _verify(self, current: Json | None, wanted: Json, is_known: bool) -> None:
        """Raise where the write may take away what others have: entries that are not understood,
        or, where it is empty, not there or not known by its ETag, what another kind of read has.
        """
        before, empty = properties_of(current or {}), list[str]()
        for key, value in properties_of(wanted).items():
            known = before.get(key, [])
            if isinstance(value, list) and value != known:
                if objects(known) != known:
                    raise CloudError(f"{self._noun} {self.path}: {key} is not understood")
                empty += [] if known else [key]
        must_be_asked = current is None or bool(empty and before)
        if (is_known or wanted == current) and not must_be_asked:
            return
        try:
            item = await self.listed() or {}
        except Denied:  # where it may be read, but not what is beside it
            if must_be_asked:
                raise
            return
        is_of_it = item.get("etag") == (current or {}).get("etag")
        is_less = current is None or (is_of_it and lacks(current, item))
        if item and (is_less or any(map(properties_of(item).get, empty))):
            self._etag = ""
            why = f"{self._noun} {self.path} is listed otherwise"
            raise PreconditionFailed(why, RACE_RETRY)


def lacks(answer: object, other: object) -> bool:
    """Whether an answer is without something that another one of the same ETag has."""
    if isinstance(other, dict):
        known = answer if isinstance(answer, dict) else {}
        return any(
            item and (key not in known or lacks(known[key], item)) for key, item in other.items()
        )
    if isinstance(other, list):
        listed = answer if isinstance(answer, list) else []
        return len(listed) < len(other) or any(map(lacks, listed, other))
    return False


def _entries(resource: Json) -> set[tuple[str, str]]:
    """The lists of a resource with the names in them."""
    return {
        (key, text(entry.get("name")).lower())
        for key, value in properties_of(resource).items()
        for entry in objects(value)
        if entry.get("name")
    }
