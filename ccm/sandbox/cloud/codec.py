"""JSON in and out of the cloud's HTTP surfaces: strictly decoded records, errors, responses."""

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache
from types import UnionType
from typing import Annotated, Any, TypeVar, cast, get_args, get_origin, get_type_hints

import orjson
from aiohttp import web

T = TypeVar("T")
Decoder = Callable[[Any, str], Any]


class CloudApiError(Exception):
    """An answer that is not a success: an HTTP status, the cloud's own code, and a sentence."""

    def __init__(
        self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.headers = dict(headers or {})


def invalid(message: str) -> CloudApiError:
    """The request itself is wrong."""
    return CloudApiError(400, "InvalidRequest", message)


def not_found(what: str) -> CloudApiError:
    """The thing named in the path is not there."""
    return CloudApiError(404, "NotFound", f"{what} does not exist")


def json_response(
    body: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """A JSON response; without a body when there is none."""
    content = None if body is None else orjson.dumps(body)
    kind = "application/json"
    return web.Response(body=content, status=status, headers=headers, content_type=kind)


def error_response(error: CloudApiError) -> web.Response:
    """The response that carries an error."""
    body = {"error": {"code": error.code, "message": error.message}}
    return json_response(body, error.status, error.headers)


async def read_json(request: web.Request) -> object:
    """The JSON body of a request; None when it has none."""
    content = await request.read()
    try:
        return orjson.loads(content) if content else None
    except orjson.JSONDecodeError as error:
        raise invalid(f"the body is not JSON: {error}") from error


def json_object(body: object, what: str = "the body") -> dict[str, Any]:
    """The body if it is a JSON object."""
    if not isinstance(body, dict):
        raise invalid(f"{what} must be a JSON object")
    return body


def decode(record: type[T], body: object) -> T:
    """The record that a JSON object describes; raises the 400 of a wrong or missing field.

    An unknown field is refused too: a cloud that ignores a field hides a mistake.
    """
    found = decode_fields(record, body)
    for field in fields(cast(Any, record)):
        if field.name not in found and field.default is field.default_factory is MISSING:
            raise invalid(f"{record.__name__} needs {field.name!r}")
    return record(**found)


def decode_fields(record: type, body: object, *only: str) -> dict[str, Any]:
    """The fields of the record that are named in the body; with `only`, no others may be."""
    content = json_object(body, record.__name__)
    decoders = _decoders(record)
    unknown = sorted(content.keys() - (only or decoders.keys()))
    if unknown:
        raise invalid(f"{record.__name__} has unknown fields: {', '.join(unknown)}")
    return {
        name: decoders[name](value, f"{name!r} of {record.__name__}")
        for name, value in content.items()
    }


@cache
def _decoders(record: type) -> dict[str, Decoder]:
    hints = get_type_hints(record, include_extras=True)
    return {name: _decoder(hint) for name, hint in hints.items()}


def _decoder(hint: Any) -> Decoder:
    """What reads a value of this type; the text it is given says which value that is."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return lambda value, what: value
    if is_dataclass(hint):
        return lambda value, what: decode(cast(Any, hint), value)
    if origin in (Annotated, UnionType, tuple, Mapping):
        inner = _decoder(arguments[1 if origin is Mapping else 0])
    if origin is Annotated:
        return lambda value, what: hint.__metadata__[0](inner(value, what))
    if origin is UnionType:
        return lambda value, what: None if value is None else inner(value, what)
    if origin is tuple:
        return lambda value, what: tuple(inner(each, what) for each in _typed(list, value, what))
    if origin is Mapping:
        return lambda value, what: {
            key: inner(each, what) for key, each in _typed(dict, value, what).items()
        }
    if issubclass(hint, StrEnum):
        return lambda value, what: _member(hint, value, what)
    return lambda value, what: _typed(hint, value, what)


def _member(enum: type[StrEnum], value: Any, what: str) -> StrEnum:
    try:
        return enum(value)
    except ValueError as error:
        raise invalid(f"{what} must be one of {', '.join(enum)}") from error


def _typed(kind: type, value: Any, what: str) -> Any:
    is_mixed_up = isinstance(value, bool) and kind is not bool  # a bool is an int in Python only
    if is_mixed_up or not isinstance(value, int | float if kind is float else kind):
        names = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}
        raise invalid(f"{what} must be {names.get(kind, f'a {kind.__name__}')}")
    return value


def canonical_cidr(text: str) -> str:
    """The one canonical spelling of a network."""
    try:
        return str(ipaddress.ip_network(text))
    except ValueError as error:
        raise invalid(f"{text!r} is not a network: {error}") from error


Cidr = Annotated[str, canonical_cidr]
