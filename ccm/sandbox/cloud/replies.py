"""JSON answers and bodies of both HTTP surfaces, by orjson."""

from collections.abc import Mapping
from typing import Any

import orjson
from aiohttp import web

from ccm.sandbox.cloud.problems import Problem, invalid


def answered(
    body: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """A JSON response; without a body when there is none."""
    return web.Response(
        body=None if body is None else orjson.dumps(body),
        status=status,
        headers=headers,
        content_type="application/json",
    )


def refused(problem: Problem) -> web.Response:
    return answered(problem.body(), problem.status, problem.headers)


async def body_of(request: web.Request) -> object:
    """The JSON body of a request; None when it has none."""
    content = await request.read()
    try:
        return orjson.loads(content) if content else None
    except orjson.JSONDecodeError as wrong:
        raise invalid(f"the body is not JSON: {wrong}") from wrong
