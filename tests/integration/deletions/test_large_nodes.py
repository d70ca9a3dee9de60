"""What a pass costs the supervisor, whatever kubelets write into their Nodes."""

import re
import time
from pathlib import Path

from ccm.bus.frames import ProposeDeletions
from ccm.model.objects import Json, carried
from ccm.supervisor.deletions import DeletionGovernor
from ccm.supervisor.delivery import ProjectedStore
from ccm.supervisor.nodes import NODE_PROJECTION, NodeLister

from .cluster import POLICY

COUNT = 200


def seconds_of_a_pass(path: Path, status: str) -> float:
    """The least that one takes of the processor, with Nodes on no machine whose status is such."""
    store = ProjectedStore("Node")
    for number in range(COUNT):
        raw: Json = {
            "metadata": {"uid": f"u{number}"},
            "spec": {"providerID": f"simulated://{number}"},
            "status": {"conditions": [{"type": "Ready", "status": status}]},
        }
        store.values[f"n{number}"] = 1, carried("Node", raw, NODE_PROJECTION.paths)
    nodes = NodeLister(store)
    nodes.provider_ids = re.compile("simulated://.*")
    governor = DeletionGovernor(POLICY, path, nodes, lambda *_: None)
    took = list[float]()
    for _ in range(4):
        now = time.monotonic()
        gone = [[f"n{number}", f"u{number}", "gone", now, False] for number in range(COUNT)]
        began = time.thread_time()
        governor.on_message("node-0", ProposeDeletions(COUNT, gone, []))
        took.append(time.thread_time() - began)
    return min(took)


def test_what_a_node_has_is_not_read_again_in_each_pass(tmp_path: Path) -> None:
    """A thousand Nodes of 128 KiB had the supervisor stand still for most of a second in each."""
    usual = seconds_of_a_pass(tmp_path / "usual.json", "False")
    assert seconds_of_a_pass(tmp_path / "large.json", "é" * 60_000) < 5 * usual
