"""Serves watches: sends a stream's lines and lets faults strike between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

from aiohttp import web

from ccm.sandbox.kubernetes.call import Call, check_accept
from ccm.sandbox.kubernetes.faults import GARBAGE, Fault, Faults, Occasion
from ccm.sandbox.kubernetes.resources import render
from ccm.sandbox.kubernetes.store import Store
from ccm.sandbox.kubernetes.visit import Visit
from ccm.sandbox.kubernetes.watch import event, gone, interest_of, start_of, stream


async def never() -> None:
    """Wait until the connection goes away and this task is cancelled."""
    await asyncio.Event().wait()


async def abort(request: web.BaseRequest) -> None:
    """Drop the connection without another byte; does not return."""
    if request.transport is not None:
        request.transport.abort()
    await never()


class Streams:
    """Serves the watches of one sandbox."""

    def __init__(self, store: Store, faults: Faults) -> None:
        self._store = store
        self._faults = faults

    async def serve(
        self,
        visit: Visit,
        call: Call,
        fault: Fault | None,
    ) -> web.StreamResponse:
        """Stream until the watch ends; it is logged when it begins."""
        request = visit.request
        check_accept(call.accept)
        start = start_of(call)
        interest = interest_of(call, lambda stored: render(call, stored))
        lines = stream(self._store, call, interest, start)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        visit.log(response.status)
        if fault is not None and fault.action == "silence":
            await never()
        if fault is not None and fault.action == "gone":
            await response.write(gone(fault.message))
            return response
        occasion = replace(visit.occasion, verb="event")
        await self._send(request, response, lines, occasion)
        return response

    async def _send(
        self,
        request: web.BaseRequest,
        response: web.StreamResponse,
        lines: AsyncIterator[bytes],
        occasion: Occasion,
    ) -> None:
        async for line in lines:
            fault = self._faults.take(occasion)
            if fault is not None and await self._ends(fault, request, response, line):
                return
            await response.write(line)

    @staticmethod
    async def _ends(
        fault: Fault, request: web.BaseRequest, response: web.StreamResponse, line: bytes
    ) -> bool:
        """Let a fault strike before a line is sent; tell whether the stream is over."""
        match fault.action:
            case "delay":
                await asyncio.sleep(fault.seconds)
            case "garbage":
                text = fault.text.encode()
                await response.write(text + b"\n" if text else event(b"MODIFIED", GARBAGE))
            case "reset":
                if fault.when == "middle":
                    await response.write(line[: len(line) // 2])
                await abort(request)
            case "silence":
                await never()
            case "gone" | "respond":
                await response.write(gone(fault.message))
                return True
        return False
