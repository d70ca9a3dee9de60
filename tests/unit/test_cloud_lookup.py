"""Many objects to a cloud call: each failed call is its own objects' failure and no other's."""

import time
from collections.abc import Mapping, Sequence

import orjson
import pytest

from ccm.cloud.json_api import verify_lists
from ccm.cloud.lookup import Lookup, look_up, look_up_async, one_answer
from ccm.errors import CloudError, Throttled
from ccm.model.cloud import Gone, Instance, Unknown


class Cloud:
    """Answers with the value itself; calls that hold one of `broken` fail."""

    def __init__(self, *broken: str) -> None:
        self.broken = set(broken)
        self.calls: list[list[str]] = []

    def read(self, values: Sequence[str]) -> Mapping[str, str]:
        self.calls.append(list(values))
        if self.broken & set(values):
            raise Throttled(f"no {values[0]}")
        return {value: value.upper() for value in values if value != "left-out"}

    async def read_async(self, values: Sequence[str]) -> Mapping[str, str]:
        return self.read(values)


async def both(
    size: int, cloud: Cloud, *lookups: Mapping[str, str]
) -> tuple[Mapping[str, object], Mapping[str, object]]:
    """What a plain provider gets, and an asynchronous one."""
    plain = look_up(size, *(Lookup(values, cloud.read) for values in lookups))
    return plain, await look_up_async(size, *(Lookup(v, cloud.read_async) for v in lookups))


async def test_a_call_holds_a_batch_of_one_lookup_and_each_value_once() -> None:
    cloud = Cloud()
    for answers in await both(2, cloud, {"a": "x", "b": "x", "c": "y"}, {"d": "z"}):
        assert answers == {"a": "X", "b": "X", "c": "Y", "d": "Z"}
    assert cloud.calls == [["x"], ["y"], ["z"]] * 2


async def test_a_failed_call_and_an_answer_left_out_are_unknown_and_spoil_no_other() -> None:
    lookup = {"a": "x", "b": "y", "c": "left-out"}
    for answers in await both(1, Cloud("x"), lookup):
        left_out = Unknown("the cloud's answer leaves left-out out")
        assert answers == {"a": Unknown("no x"), "b": "Y", "c": left_out}


async def test_when_every_call_failed_the_first_error_is_raised() -> None:
    with pytest.raises(Throttled, match="no x"):
        look_up(1, Lookup({"a": "x", "b": "y"}, Cloud("x", "y").read))
    with pytest.raises(CloudError, match="no x"):
        await look_up_async(1, Lookup({"a": "x", "b": "y"}, Cloud("x", "y").read_async))
    assert await both(1, Cloud(), {}) == ({}, {})


def test_of_several_records_those_count_that_exist() -> None:
    gone, one, two = Gone("terminated"), Instance("c://1"), Instance("c://2")
    assert one_answer([gone], "are a") == gone
    assert one_answer([gone, one], "are a") == one
    assert one_answer([two, gone, one], "are a") == Unknown("2 are a: c://1, c://2")


@pytest.mark.parametrize("item", [b"[]", b"{}", b"1"])
def test_to_see_how_long_lists_are_takes_little_longer_than_to_read_them(item: bytes) -> None:
    """At two microseconds an item, an answer of 4 MB took five seconds of one turn."""
    some = b"[%s]" % b",".join([item] * 1000)
    body = b"[%s]" % b",".join([some] * 300)
    began = time.process_time()
    content = orjson.loads(body)
    read = time.process_time()
    verify_lists("List", body, content)
    assert time.process_time() - read < 5 * (read - began)
