"""Google's own contract: what a request or an answer of the Compute API has to look like."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Json = dict[str, Any]

CONTRACT = Path(__file__).with_name("contract.json")
COMMON = {"alt", "prettyPrint", "fields", "key", "quotaUser", "userIp"}
NUMBERS: dict[str, Any] = {"integer": int, "number": (int, float), "boolean": bool, "any": object}
_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


class Refusal(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message

    @property
    def body(self) -> Json:
        detail = {"message": self.message, "domain": "global", "reason": self.reason}
        return {"error": {"code": self.status, "message": self.message, "errors": [detail]}}


@dataclass(frozen=True, slots=True)
class Method:
    """One method of the document, such as `instances.get`."""

    name: str
    spec: Json

    @property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(re.sub(r"\{\+?(\w+)\}", r"(?P<\1>[^/]+)", self.spec["path"]))

    @property
    def is_global(self) -> bool:
        return "/global/" in self.spec["path"]


class Contract:
    """Finds the method of a request; raises `Refusal` for what the document does not allow."""

    def __init__(self) -> None:
        document = json.loads(CONTRACT.read_text())
        self._schemas = document["schemas"]
        methods = [Method(name, spec) for name, spec in document["methods"].items()]
        self._methods = [(one.pattern, one) for one in methods]

    def match(self, verb: str, path: str) -> tuple[Method, Mapping[str, str]]:
        """The method of a path below `compute/v1/`, and what stands in its braces."""
        for pattern, method in self._methods:
            found = pattern.fullmatch(path)
            if found and method.spec["method"] == verb:
                return method, found.groupdict()
        raise Refusal(404, "notFound", f"The requested URL was not found: {verb} {path}")

    def check_call(
        self, method: Method, places: Mapping[str, str], query: Mapping[str, Sequence[str]]
    ) -> None:
        """Refuse wrong parameters."""
        parameters = method.spec["parameters"]
        given = [*places.items(), *((key, one) for key, some in query.items() for one in some)]
        for key, value in given:
            spec = parameters.get(key)
            if spec is None and key not in COMMON:
                raise Refusal(400, "badRequest", f'Invalid JSON payload or unknown name "{key}"')
            spec = spec or {}
            if "pattern" in spec and not re.fullmatch(spec["pattern"], value):
                raise Refusal(400, "invalid", f"Invalid value '{value}' for {key}")
            is_number = spec.get("type") == "integer"
            if is_number and not (
                value.isdecimal() and int(value) <= int(spec.get("maximum", value))
            ):
                raise Refusal(400, "invalidParameter", f"Invalid value '{value}' for {key}")
            if key == "requestId" and not (_UUID.fullmatch(value) and value.strip("0-")):
                raise Refusal(400, "invalid", "requestId must be a UUID")

    def check(self, name: str, value: object, *, is_answer: bool = False) -> None:
        """Refuse a body with unknown names, other types, or values that are not in an enum."""
        for where, problem in self._faults(self._schemas[name], value, name, is_answer):
            raise Refusal(400, "invalid", f"Invalid value for field '{where}': {problem}")

    def _faults(
        self, spec: Json, value: Any, where: str, is_answer: bool
    ) -> Iterator[tuple[str, str]]:
        spec = self._schemas[spec["$ref"]] if "$ref" in spec else spec
        if value is None:
            return
        match spec.get("type", "object"):
            case "object":
                if not isinstance(value, dict):
                    yield where, "an object is expected"
                    return
                known, more = spec.get("properties", {}), spec.get("additionalProperties")
                for key, one in value.items():
                    if key not in known and more is None:
                        yield f"{where}.{key}", "unknown name"
                    else:
                        inner = known.get(key, more)
                        yield from self._faults(inner, one, f"{where}.{key}", is_answer)
            case "array":
                if not isinstance(value, list):
                    yield where, "an array is expected"
                    return
                for at, one in enumerate(value):
                    yield from self._faults(spec["items"], one, f"{where}[{at}]", is_answer)
            case "string":
                yield from _text_faults(spec, value, where, is_answer)
            case kind if isinstance(value, bool) != (kind == "boolean") or not isinstance(
                value, NUMBERS[kind]
            ):
                yield where, f"{kind} is expected, {value!r}"


def _text_faults(spec: Json, value: Any, where: str, is_answer: bool) -> Iterator[tuple[str, str]]:
    is_long = spec.get("format") in ("int64", "uint64")
    if is_long and not is_answer and re.fullmatch(r"-?\d+", str(value)):
        return
    if not isinstance(value, str):
        yield where, f"text is expected, {value!r}"
    elif "enum" in spec and value not in spec["enum"]:
        yield where, f"{value!r} is not one of {spec['enum'][:12]}"
    elif "pattern" in spec and value and not re.fullmatch(spec["pattern"], value):
        yield where, f"{value!r} must be a match of regex {spec['pattern']!r}"
