"""Asking a cloud about many objects, a batch to a call: one failed call leaves the others known."""

import asyncio
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from ccm.errors import CloudError, NotFound
from ccm.http import BodyTooLarge
from ccm.model.cloud import Answer, Gone, Instance, PlaceAnswer, Unknown
from ccm.model.objects import Json, mapping, text
from ccm.model.volume import PLACEHOLDER, PersistentVolume

K = TypeVar("K")
T = TypeVar("T")
A = TypeVar("A")
R = TypeVar("R", covariant=True)

MAX_PAGES = 1000  # of one list; a cloud may name a next one for ever
MAX_LOST = 20  # objects that a list lacks and that are asked for by themselves
MAX_READS = 100  # under way together of those that an answer makes necessary
MAX_VALUES = 16_000_000  # of an answer, and of all pages of a list: a gigabyte in memory
MAX_RECORDS = 100_000  # of a list: they are gone through in one turn
MAX_PARTS = 1000  # of a record, such as addresses, that are looked at
LONGEST_TURN = 0.05  # seconds in which records are read before all else has its turn
OBJECT_WEIGHT = 10  # values, as each is read: 1.5 million take seconds of one turn
MAX_PLACES = 1_500_000  # lists, or keys, of one answer: each takes most of a microsecond of a turn
BYTES_A_VALUE = 64  # of an answer: texts count as well
MAX_ELEMENTS = 1_500_000  # of an answer in XML: the same, in which no other thread runs
NOT_UNDERSTOOD = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)
"""What comes of reading an answer that has another form than the cloud's."""


@dataclass(frozen=True, slots=True)
class Lookup(Generic[R]):
    """Objects by name, with the IDs or names that the cloud knows them by.

    `read` makes one call for some of these values and says what the cloud answers about each.
    """

    values: Mapping[str, str]
    read: Callable[[Sequence[str]], R]

    def read_values(self) -> R:
        """One call for all of the values, each once."""
        return self.read(list(dict.fromkeys(self.values.values())))


def check_xml(body: bytes) -> int:
    """How many tags it has, or what its texts count as; `ValueError` for what takes many times its
    size, or hides whether.
    """
    if b"<!DOCTYPE" in body or b"\0" in body[:4]:
        raise ValueError("it declares entities, or is not UTF-8")
    if (tags := body.count(b"<")) > MAX_ELEMENTS:
        why = f"it has more than {MAX_ELEMENTS} elements"
        raise ValueError(why) from BodyTooLarge(why)
    return max(tags, len(body) // BYTES_A_VALUE)


def verify_count(
    operation: str, count: int, most: int = 0, by: type[Exception] | None = None
) -> None:
    """Raise `CloudError` for a list of so many records that all else would wait for its turn."""
    if count > (most or MAX_RECORDS):
        why = f"the list has more than {most or MAX_RECORDS} records"
        raise CloudError(f"{operation}: {why}") from by and by(why)


def batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The items in their order, at most `size` at a time."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """The items, with turns for all else in between: an answer has room for a million."""
    began = time.perf_counter()
    for item in items:
        yield item
        if time.perf_counter() - began > LONGEST_TURN:
            await asyncio.sleep(0)
            began = time.perf_counter()


def look_up(size: int, *lookups: Lookup[Mapping[str, A]]) -> dict[str, A | Unknown]:
    """An answer for every object by name, from calls for at most `size` objects.

    A call that failed makes its own objects `Unknown`, and so does an answer that leaves one out.
    Raises `CloudError` when every call failed.
    """
    split = _split(size, lookups)
    results: list[Mapping[str, A] | CloudError] = []
    for batch in split:
        try:
            results.append(batch.read_values())
        except CloudError as failure:
            results.append(failure)
    return _merge(split, results)


async def look_up_async(
    size: int, *lookups: Lookup[Awaitable[Mapping[str, A]]]
) -> dict[str, A | Unknown]:
    """As `look_up`, with all calls under way together."""
    split = _split(size, lookups)
    results = await read_each({at: batch.read_values() for at, batch in enumerate(split)})
    return _merge(split, [*results.values()])


async def together(*calls: Awaitable[T]) -> list[T]:
    """What all of them give, each to its end: none goes on after one has failed.

    Raises what the first one raised that failed.
    """
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [item for item in results if not isinstance(item, BaseException)]


async def read_each(reads: Mapping[K, Awaitable[T]]) -> dict[K, T | CloudError]:
    """What each of several reads gives or fails with, all under way together.

    Raises `CloudError` when all failed, and whatever else one raises.
    """
    results = await asyncio.gather(*reads.values(), return_exceptions=True)
    failures = [result for result in results if isinstance(result, BaseException)]
    for failure in failures:
        if not isinstance(failure, CloudError) or len(failures) == len(results):
            raise failure
    return {
        key: result
        for key, result in zip(reads, results, strict=True)
        if isinstance(result, CloudError) or not isinstance(result, BaseException)
    }


async def find_lost(
    operation: str,
    ids: Collection[str],
    read: Callable[[str], Awaitable[Json | None]],
    most: int = MAX_LOST,
) -> dict[str, Json]:
    """Of objects that are in use and that a list lacks, those that are there, each read by itself.

    Raises `CloudError` where more than `most` are lost, so that the list is to blame; `read`
    returns None or raises `NotFound` for what has gone.
    """
    if len(ids) > most:
        raise CloudError(f"{operation}: the answer lacks {len(ids)} of what is in use")
    found = dict[str, Json]()
    for lost_id in sorted(ids):
        with suppress(NotFound):
            if record := await read(lost_id):
                found[lost_id] = record
    return found


def volume_ids(
    volumes: Iterable[PersistentVolume],
    csi_driver: str,
    legacy_source: str,
    read_id: Callable[[str], str],
) -> tuple[dict[str, str], dict[str, PlaceAnswer]]:
    """By the names of PersistentVolumes, the IDs to ask about, and answers where there is none.

    The ID is in the handle of the CSI driver or in `volumeID` of the legacy source; `read_id` finds
    it, and is empty where it cannot be one.
    """
    asked, answers = dict[str, str](), dict[str, PlaceAnswer]()
    for volume in volumes:
        legacy = mapping(volume.spec.get(legacy_source)).get("volumeID")
        handle = volume.csi_handle if volume.csi_driver == csi_driver else text(legacy)
        if volume_id := read_id(handle):
            asked[volume.name] = volume_id
        elif handle == PLACEHOLDER:
            answers[volume.name] = Unknown("the volume is still being made")
        else:
            answers[volume.name] = Gone(f"{handle!r} cannot be the ID of a volume")
    return asked, answers


def one_answer(answers: Sequence[Answer], are_all: str) -> Answer:
    """The one answer that all records found for one Node come to: those that exist count.

    `are_all` says what several of them share, as in "machines are named a".
    """
    existing = [answer for answer in answers if not isinstance(answer, Gone)]
    if len(existing) > 1:
        ids = sorted(item.provider_id if isinstance(item, Instance) else "?" for item in existing)
        return Unknown(f"{len(ids)} {are_all}: {', '.join(ids)}")
    return existing[0] if existing else answers[0]


def _split(size: int, lookups: Sequence[Lookup[R]]) -> list[Lookup[R]]:
    return [
        replace(lookup, values=dict(some))
        for lookup in lookups
        for some in batches(list(lookup.values.items()), size)
    ]


def _merge(
    split: Sequence[Lookup[R]], results: Sequence[Mapping[str, A] | CloudError]
) -> dict[str, A | Unknown]:
    failures = [result for result in results if isinstance(result, CloudError)]
    if failures and len(failures) == len(results):
        raise failures[0]
    answers: dict[str, A | Unknown] = {}
    for batch, result in zip(split, results, strict=True):
        for name, value in batch.values.items():
            if isinstance(result, CloudError):
                answers[name] = Unknown(str(result))
            else:
                left_out = Unknown(f"the cloud's answer leaves {value} out")
                answers[name] = result.get(value, left_out)
    return answers
