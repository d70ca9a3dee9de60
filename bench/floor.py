"""The floor: a bare load generator that sends the two writes of each node and nothing else.

It runs as a process of its own, like the controller: `python -m bench.floor URL CA TOKEN FILE`.
The file has a write a line: a path, a blank and a JSON patch; those of a node follow each other. It
says `ready`, waits for a line on standard input, sends, and says how much CPU time that took.
"""

import asyncio
import ssl
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import aiohttp

from ccm.kube.client import METADATA_ONLY, STRATEGIC_PATCH

IN_FLIGHT = 32
WRITES = 2  # a node
HEADERS = {"Content-Type": STRATEGIC_PATCH, "Accept": METADATA_ONLY, "User-Agent": "floor"}


async def send_all(url: str, context: ssl.SSLContext, token: str, lines: list[bytes]) -> None:
    """All writes, those of one node in order, `IN_FLIGHT` nodes at a time."""
    connector = aiohttp.TCPConnector(limit=IN_FLIGHT, ssl=context)
    headers = HEADERS | {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(url, connector=connector, headers=headers) as session:
        left = iter(lines)
        await asyncio.gather(*(_send(session, left) for _ in range(IN_FLIGHT)))


async def _send(session: aiohttp.ClientSession, left: Iterator[bytes]) -> None:
    while writes := list(islice(left, WRITES)):
        for write in writes:
            path, _, body = write.partition(b" ")
            async with session.patch(path.decode(), data=body) as answer:
                await answer.read()
                answer.raise_for_status()


def main() -> None:
    url, authority, token, file = sys.argv[1:]
    context = ssl.create_default_context(cafile=authority)
    lines = Path(file).read_bytes().splitlines()
    print("ready", flush=True)
    sys.stdin.readline()
    before = time.process_time()
    asyncio.run(send_all(url, context, token, lines))
    print(time.process_time() - before, flush=True)


if __name__ == "__main__":
    main()
