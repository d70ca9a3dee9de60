"""DigitalOcean's own contract: what a request or an answer has to look like."""

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from openapi_schema_validator import OAS30Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

CONTRACT = Path(__file__).with_name("contract.json")
_URI = "urn:digitalocean"
UNKNOWN = ("/v2/volumes",)
"""What the document leaves out here."""


class Contract:
    """Says what is wrong with a request or an answer; nothing when it is right."""

    def __init__(self) -> None:
        self._document = json.loads(CONTRACT.read_text())
        resource = DRAFT202012.create_resource(self._document)
        self._registry: Registry[Any] = Registry().with_resource(_URI, resource)
        self._paths = [
            (re.compile(re.sub(r"\{[^}]+\}", "[^/]+", path)), path)
            for path in self._document["paths"]
        ]

    def faults_of_request(self, method: str, path: str, query: Any, body: Any) -> Iterator[str]:
        """What is wrong with a request."""
        operation, pointer = self._operation(method, path)
        if operation is None:
            if not path.startswith(UNKNOWN):
                yield f"{method} {path} is not in the contract"
            return
        for parameter in operation.get("parameters", ()):
            name = parameter["name"]
            if parameter["in"] == "query" and name in query:
                is_number = parameter["schema"].get("type") == "integer"
                value = int(query[name]) if is_number else query[name]
                validator = OAS30Validator(parameter["schema"])
                yield from (f"{name}: {e.message}" for e in validator.iter_errors(value))
        if "requestBody" in operation:
            yield from self._faults(f"{pointer}/requestBody", body)
        elif body is not None:
            yield f"{method} {path} takes no body"

    def faults_of_answer(self, method: str, path: str, status: int, body: Any) -> Iterator[str]:
        """What is wrong with an answer."""
        operation, pointer = self._operation(method, path)
        if operation is None:
            return
        known = str(status) if str(status) in operation["responses"] else "default"
        if "content" in operation["responses"][known]:
            yield from self._faults(f"{pointer}/responses/{known}", body)
        elif body is not None:
            yield f"{method} {path} answers {status} without a body"

    def _operation(self, method: str, path: str) -> tuple[Any, str]:
        for form, name in self._paths:
            operation = self._document["paths"][name].get(method.lower())
            if operation and form.fullmatch(path):
                return operation, f"/paths/{name.replace('/', '~1')}/{method.lower()}"
        return None, ""

    def _faults(self, pointer: str, body: Any) -> Iterator[str]:
        for error in self._validator(pointer).iter_errors(body):
            yield from _words(error)

    @lru_cache(maxsize=64)  # noqa: B019 - there is one contract
    def _validator(self, pointer: str) -> OAS30Validator:
        where = f"{_URI}#{pointer}/content/application~1json/schema"
        return OAS30Validator({"$ref": where}, registry=self._registry)


def _words(error: Any) -> Iterator[str]:
    """What is wrong; of several alternatives the one that fits best."""
    parts = error.context or ()
    if not parts:
        yield f"{'.'.join(map(str, error.absolute_path))}: {error.message}"
        return
    best = min(parts, key=lambda one: (len(one.context or ()), -len(one.absolute_path)))
    yield from _words(best)
