"""A TCP port of the host's loopback that leads into a lab's network namespace.

The listening socket is made before the process moves, as a socket stays in the namespace it was
made in; every connection to the target is made after. Started in the lab with a process of the
host, it leads out of it.

usage: relay.py PID TARGET_HOST TARGET_PORT PORT_FILE [PORT [HOST]]
"""

import asyncio
import ctypes
import os
import socket
import sys
from pathlib import Path

PUMP = 65536


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(PUMP):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except OSError:
        writer.close()


async def main(pid: int, to: tuple[str, int], port_file: Path, at: tuple[str, int]) -> None:
    listener = socket.create_server(at)
    netns = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(netns, 0x40000000) != 0:
        raise OSError(ctypes.get_errno(), "setns")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*to)
        except OSError:
            writer.transport.abort()
            return
        try:
            await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))
        finally:
            far_writer.close()
            writer.close()

    server = await asyncio.start_server(serve, sock=listener)
    scratch = port_file.with_suffix(".tmp")
    scratch.write_text(f"{listener.getsockname()[1]}\n")
    scratch.rename(port_file)
    lab = os.pidfd_open(pid)
    gone = asyncio.Event()
    asyncio.get_running_loop().add_reader(lab, gone.set)
    async with server:
        await gone.wait()  # the lab has ended, and so do we


if __name__ == "__main__":
    process, target, target_port, file, *rest = sys.argv[1:]
    wanted, listening = (*rest, *("0", "127.0.0.1")[len(rest) :])
    asyncio.run(
        main(int(process), (target, int(target_port)), Path(file), (listening, int(wanted)))
    )
