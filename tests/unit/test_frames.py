"""The messages between supervisor and workers."""

from dataclasses import fields, replace
from typing import Any, get_args, get_origin

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.bus.frames import (
    MAX_FRAME,
    REPORTED_LIMIT,
    BadFrame,
    Explained,
    Fault,
    Heartbeat,
    Message,
    MessageTooLarge,
    Objects,
    Permit,
    Resync,
    decode,
    encode,
)
from ccm.redaction import register_secrets, safe_values

REPORTED = {Heartbeat: "status", Explained: "status", Fault: "lines", Resync: "why"}
TYPES: tuple[type[Message], ...] = get_args(Message)

wire_text = st.text(st.characters(exclude_categories=["Cs"]))
numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
any_json = st.recursive(
    st.none() | st.booleans() | numbers | wire_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(wire_text, inner, max_size=4),
    max_leaves=20,
)
BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(2**53), 2**53),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    str: wire_text,
    bytes: st.just(b"") | any_json.map(orjson.dumps),
    type(None): st.none(),
    Any: any_json,
}


def values(annotation: Any) -> st.SearchStrategy[Any]:
    """Values of a field with this type."""
    if annotation in BY_TYPE:
        return BY_TYPE[annotation]
    arguments = [values(argument) for argument in get_args(annotation)]
    origin = get_origin(annotation)
    if origin is list:
        return st.lists(*arguments, max_size=4)
    if origin is dict:
        return st.dictionaries(*arguments, max_size=4)
    return st.one_of(arguments)


def messages(kind: type[Message]) -> st.SearchStrategy[Message]:
    built: st.SearchStrategy[Message]
    built = st.builds(kind, **{item.name: values(item.type) for item in fields(kind)})
    return built.map(_with_a_value_each) if kind is Objects else built


def _with_a_value_each(message: Message) -> Message:
    assert isinstance(message, Objects)
    count = min(len(message.entries), len(message.values))
    return replace(message, entries=message.entries[:count], values=message.values[:count])


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.__name__)
def test_every_message_survives_the_wire(kind: type[Message]) -> None:
    @given(messages(kind))
    def survives(message: Message) -> None:
        name = REPORTED.get(kind)
        shown = {name: safe_values(getattr(message, name), REPORTED_LIMIT)} if name else {}
        assert decode(encode(message)) == replace(message, **shown)

    survives()


def decoded(frame: bytes) -> Message | None:
    """The message in `frame`, None when it was refused; any other error fails the test."""
    try:
        return decode(frame)
    except BadFrame:
        return None


@given(st.binary())
def test_garbage_is_a_bad_frame(frame: bytes) -> None:
    assert decoded(frame) is None


names = st.sampled_from([kind.__name__ for kind in TYPES] + ["t", "Message", "object"])
fieldnames = st.sampled_from(sorted({item.name for kind in TYPES for item in fields(kind)}))


@given(any_json | st.dictionaries(fieldnames | st.just("t"), names | any_json, max_size=5))
def test_any_json_is_a_message_or_a_bad_frame(body: Any) -> None:
    message = decoded(orjson.dumps(body))
    assert message is None or type(message) in TYPES


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(b'{"t":"Ack"}', id="a-field-is-missing"),
        pytest.param(b'{"t":"Ack","seq":1,"more":2}', id="a-field-too-many"),
        pytest.param(b'{"t":"Nothing"}', id="unknown-type"),
        pytest.param(b'{"t":["Ack"],"seq":1}', id="the-type-is-a-list"),
        pytest.param(b'{"seq":1}', id="no-type"),
        pytest.param(b'{"t":"Permit","until":1}\n{}', id="a-line-too-many"),
        pytest.param(
            b'{"t":"Objects","epoch":1,"seq":1,"complete":true,"entries":[["Node","a",1]]}',
            id="a-value-is-missing",
        ),
        pytest.param(
            b'{"t":"Objects","epoch":1,"seq":1,"complete":true,"entries":1}', id="no-entries"
        ),
        pytest.param(b"[]", id="a-list"),
        pytest.param(b"null", id="null"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"[" * 100_000, id="deeply-nested"),
        pytest.param(b'{"t":"Ack","seq":1}' + b" " * MAX_FRAME, id="too-long"),
    ],
)
def test_what_is_not_one_of_our_messages_is_refused(frame: bytes) -> None:
    with pytest.raises(BadFrame):
        decode(frame)


def test_a_message_is_small_json_that_a_person_can_read() -> None:
    assert encode(Permit(12.5)) == b'{"t":"Permit","until":12.5}'


def test_what_a_worker_reports_is_bounded_whatever_objects_have_put_into_it() -> None:
    register_secrets("S3CR3T")
    hostile = '"' * 240_000 + "S3CR3T"
    many = dict.fromkeys((f"default/web-{number}" for number in range(5000)), hostile)
    status = {"reasons": many, "recent": [hostile] * 50}
    reports = (Heartbeat(status), Explained(1, status), Fault([hostile] * 5000), Resync(hostile))
    for message in reports:
        frame = encode(message)
        assert len(frame) < MAX_FRAME / 4
        assert b"S3CR3T" not in frame
        assert type(decode(frame)) is type(message)


def test_a_message_that_is_too_large_is_an_error_where_it_is_made() -> None:
    large = Heartbeat({}, {"metric": "x" * MAX_FRAME})
    with pytest.raises(MessageTooLarge, match=r"^Heartbeat: 8388\d\d\d bytes are more"):
        encode(large)
