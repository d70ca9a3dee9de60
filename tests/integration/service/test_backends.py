"""The backends of all Services: which changes of a Node are a change of backends."""

import re

from ccm.cloud.testkit.harness import node
from ccm.model.objects import Node
from workers.service.backends import Backends, BackendSet
from workers.timings import Timings


def labelled(**labels: str) -> Node:
    made = node("node-1", "test://1")
    made.raw["metadata"]["labels"] = labels
    return made


class Cluster:
    """One Node that changes; `reads` counts how often it was read for a cloud."""

    def __init__(self) -> None:
        self.node: Node | None = None
        self.reads = 0
        self.backends = BackendSet(re.compile("test://.*"), lambda name: "", self.read, Timings())

    def read(self, name: str) -> Node | None:
        self.reads += 1
        return self.node

    def change(self, node: Node | None) -> Backends:
        self.node = node
        self.backends.update("node-1", node)
        return self.backends.current()


def test_a_label_counts_once_a_service_chooses_by_it() -> None:
    cluster = Cluster()
    before = cluster.change(labelled(pool="a"))
    assert cluster.change(labelled(pool="b")) == before
    cluster.backends.choose_by(["pool"])
    chosen = cluster.backends.current()
    assert cluster.change(labelled(pool="b", other="x")) == chosen
    assert cluster.change(labelled(pool="a")) != chosen


def test_a_node_is_read_once_for_all_clouds_calls_until_it_changes() -> None:
    cluster = Cluster()
    before = cluster.change(labelled(pool="a"))
    assert cluster.reads == 0
    assert [*before.nodes, *before.nodes] == [labelled(pool="a")] * 2
    assert cluster.reads == 1
    now = cluster.change(labelled(pool="b"))
    assert list(now.nodes) == list(before.nodes) == [labelled(pool="b")]
    cluster.change(None)
    assert list(now.nodes) == []
