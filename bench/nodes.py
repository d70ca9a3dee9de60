"""Node objects as large as a kubelet's, about 10 kB, and their creation."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable

from ccm.kube.client import Kube
from ccm.model.objects import Json
from ccm.sandbox.kubelets import pod_network, registration

IMAGES = 30  # of the 50 that a kubelet reports at the most
AT_ONCE = 32


def kubelets_node(name: str, has_pod_network: bool = False) -> Json:
    """What a kubelet registers, with the images and labels of a node in use."""
    node = registration(name, pod_network(name) if has_pod_network else "")
    node["metadata"]["labels"] |= {
        "node.kubernetes.io/pool": "general",
        **{f"example.com/feature-{number}": "present" for number in range(12)},
    }
    node["metadata"]["annotations"]["csi.volume.kubernetes.io/nodeid"] = (
        f'{{"csi.example.com":"{name}"}}'
    )
    node["status"]["images"] = [_image(number) for number in range(IMAGES)]
    return node


async def create(kube: Kube, nodes: Iterable[Json]) -> None:
    """Create the Nodes, some at a time."""
    await each(nodes, lambda node: kube.post("/api/v1/nodes", node))


async def each(items: Iterable[Json], act: Callable[[Json], Awaitable[object]]) -> None:
    """`act` on every item, `AT_ONCE` at a time."""
    left = iter(items)

    async def work() -> None:
        for item in left:
            await act(item)

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))


def _image(number: int) -> Json:
    name = f"registry.example.com/team-{number % 7}/service-{number}"
    digest = _digest(name)
    names = [f"{name}@sha256:{digest}", f"{name}:v1.{number}.0"]
    return {"names": names, "sizeBytes": 31_000_000 + number}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
