"""Runs a command in a network that has IPv6 alone, where some ports of ::1 lead to this host's.

usage: only_six.py PORT… -- COMMAND…

Each port leads to the same one of 127.0.0.1 outside. The listening sockets are made inside, and a
socket stays where it was made; each connection to the target is made outside. No product code.
"""

import asyncio
import ctypes
import os
import signal
import socket
import subprocess
import sys

NEW_NETWORK, PARENT_DEATH = 0x40000000, 1
PUMP = 65536


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(PUMP):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.close()


async def relay(listeners: list[socket.socket]) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = writer.get_extra_info("sockname")[1]
        try:
            inward, outward = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(pump(reader, outward), pump(inward, writer))
        for each in (writer, outward):
            each.close()

    servers = [await asyncio.start_server(serve, sock=listener) for listener in listeners]
    await asyncio.gather(*(server.serve_forever() for server in servers))


def main(ports: list[int], command: list[str]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    outside = os.open("/proc/self/ns/net", os.O_RDONLY)
    if libc.unshare(NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["ip", "-4", "address", "flush", "dev", "lo"], check=True)
    listeners = [socket.create_server(("::1", port), family=socket.AF_INET6) for port in ports]
    if os.fork():
        os.execvp(command[0], command)
    libc.prctl(PARENT_DEATH, signal.SIGKILL, 0, 0, 0)
    if libc.setns(outside, NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "setns")
    asyncio.run(relay(listeners))


if __name__ == "__main__":
    split = sys.argv.index("--")
    main([*map(int, sys.argv[1:split])], sys.argv[split + 1 :])
