"""What a supervisor lacks for a while as a worker is due: descriptors, room in its directory."""

import asyncio
import os
import resource
from contextlib import suppress
from pathlib import Path

import pytest

from ccm.bus.in_flight import SIZE
from tests.support.cluster_nodes import kill
from tests.support.environment import Environment
from tests.support.namespaces import why_no_namespaces
from tests.support.running import ALL_CONTROLLERS, Supervisor, until

pytestmark = pytest.mark.real

MISSING = why_no_namespaces("mount", "util-linux mount") or (os.geteuid() and "only root may look")


async def test_a_worker_is_back_once_there_are_descriptors(env: Environment) -> None:
    with env.supervisor(*ALL_CONTROLLERS) as supervisor:
        before = {name: worker["pid"] for name, worker in supervisor.wait_running().items()}
        descriptors = Path(f"/proc/{supervisor.process.pid}/fd")
        opened = len([*descriptors.iterdir()])
        limits = resource.prlimit(supervisor.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(supervisor.process.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
        kill(before["node-0"])
        await until("it is missed", lambda: "Too many open files" in supervisor.log.read_text())
        resource.prlimit(supervisor.process.pid, resource.RLIMIT_NOFILE, limits)
        began = asyncio.get_running_loop().time()
        await until("it is back", lambda: supervisor.is_replaced("node-0", before["node-0"]))
        print(f"back after {asyncio.get_running_loop().time() - began:.1f} s")
        after = supervisor.pids()
        assert {name for name in after if after[name] != before[name]} == {"node-0"}
        assert supervisor.is_leading()
        await env.add_nodes(3)
        await env.nodes.until_initialized(3)
        await until("none leaks", lambda: len([*descriptors.iterdir()]) <= opened + 2)
        assert supervisor.end() == 0


class Cramped(Supervisor):
    """Its runtime directory is a file system of its own, with room for two workers."""

    size = 2 * SIZE

    def command(self, arguments: list[str]) -> list[str]:
        self.runtime.mkdir()
        script = f'{self.prepare()} && exec "$@"'
        return ["unshare", "--mount", "sh", "-c", script, "sh", *super().command(arguments)]

    def prepare(self) -> str:
        return f"mount -t tmpfs -o mode=0700,size={self.size} none {self.runtime}"

    def look_inside(self) -> None:
        """From now on its directory is reached from the test's own mount namespace."""
        inside = self.runtime.with_name("inside")
        inside.symlink_to(f"/proc/{self.process.pid}/root{self.runtime}")
        self.runtime = inside

    def fill(self) -> None:
        with open(self.runtime / "filler", "wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))

    def free(self) -> None:
        (self.runtime / "filler").unlink()


class ReadOnly(Cramped):
    """It can write to its runtime directory alone, as in a container with a read-only root."""

    size = 1 << 30

    def prepare(self) -> str:
        places = f"/ /tmp /var/tmp /dev/shm {self.runtime.parent}"
        bind = "mount --bind $it $it && mount -o remount,ro,bind $it $it"
        return f"for it in {places}; do {bind}; done 2>/dev/null; cd / && {super().prepare()}"


@pytest.mark.skipif(bool(MISSING), reason=str(MISSING))
async def test_it_works_on_a_root_without_a_temporary_directory(env: Environment) -> None:
    with ReadOnly(env.where) as supervisor:
        supervisor.look_inside()
        supervisor.wait_running()
        await env.add_nodes(2)
        await env.nodes.until_initialized(2)
        assert supervisor.end() == 0


@pytest.mark.skipif(bool(MISSING), reason=str(MISSING))
async def test_a_worker_that_cannot_be_taken_in_works_once_there_is_room(env: Environment) -> None:
    with Cramped(env.where) as supervisor:
        supervisor.look_inside()
        old = supervisor.wait_running()["node-0"]["pid"]
        supervisor.fill()
        kill(old)
        await until("it starts again", lambda: supervisor.workers()["node-0"]["restarts"] > 2)
        assert "No space left" in str(supervisor.workers()["node-0"]["faults"])
        assert supervisor.is_leading()
        supervisor.free()
        await until("it works again", lambda: supervisor.is_replaced("node-0", old))
        assert supervisor.workers()["node-0"]["faults"] == []
        await env.add_nodes(3)
        await env.nodes.until_initialized(3)
        assert supervisor.end() == 0
