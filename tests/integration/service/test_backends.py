"""The backends of all Services: which changes of a Node are a change of backends."""

import re
import time
import tracemalloc

from ccm.cloud.testkit.harness import node
from ccm.cloud.testkit.test_untrusted import CPU_SECONDS
from ccm.model.objects import Node
from workers.service.backends import MOST_ADDRESSES, MOST_LABELS, Backends, BackendSet
from workers.timings import Timings


def labelled(**labels: str) -> Node:
    made = node("node-1", "test://1")
    made.raw["metadata"]["labels"] = labels
    return made


def named(name: str) -> Node:
    made = node(name, f"test://{name}")
    made.raw["metadata"]["labels"] = {f"label-{number}": "x" for number in range(20)}
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
    cluster.backends.choose_by("default/web", ["pool"])
    chosen = cluster.backends.current()
    assert chosen != before
    assert cluster.change(labelled(pool="b", other="x")) == chosen
    assert cluster.change(labelled(pool="a")) != chosen


def test_a_label_counts_as_long_as_any_service_chooses_by_it() -> None:
    cluster = Cluster()
    cluster.change(labelled(pool="a"))
    for service in ("default/web", "default/api"):
        cluster.backends.choose_by(service, ["pool"])
    cluster.backends.choose_by("default/api", [])
    chosen = cluster.backends.current()
    assert cluster.change(labelled(pool="b")) != chosen
    cluster.backends.choose_by("default/web", [])
    left = cluster.change(labelled(pool="b"))
    assert cluster.change(labelled(pool="a")) == left


def test_labels_that_a_tenant_makes_up_cost_no_time_and_no_memory() -> None:
    nodes = {f"node-{number}": named(f"node-{number}") for number in range(1000)}
    backends = BackendSet(re.compile("test://.*"), lambda name: "", nodes.get, Timings())
    for name, item in nodes.items():
        backends.update(name, item)
    before, began = backends.current(), time.process_time()
    for attempt in range(5):
        backends.choose_by("default/web", [f"key-{attempt}-{key}" for key in range(20_000)])
    assert time.process_time() - began < CPU_SECONDS
    assert backends.current() is before
    assert len(backends._labels) == MOST_LABELS


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


def test_of_thousands_of_addresses_of_a_node_some_are_compared() -> None:
    """Three hundred such Nodes took a worker most of a second of one turn at each start."""
    took = []
    for count in (MOST_ADDRESSES, 50 * MOST_ADDRESSES):
        addresses = [{"type": "InternalIP", "address": f"{at}"} for at in range(count)]
        large = node("node-1", "test://1")
        large.raw["status"] = {"addresses": addresses}
        backends = BackendSet(re.compile("test://.*"), lambda _: "", lambda _: None, Timings())
        began = time.thread_time()
        for _ in range(50):
            backends.update("node-1", large)
        took.append(time.thread_time() - began)
    assert took[1] < 10 * took[0]


def test_what_services_keep_of_nodes_with_long_texts_takes_no_memory() -> None:
    """Each keeps the backends that it has until its turn, and in all of them are other Nodes."""
    backends = BackendSet(re.compile("test://.*"), lambda name: "", lambda name: None, Timings())
    kept, size = set[Backends](), 1_000_000
    tracemalloc.start()
    for name in map(str, range(20)):
        made = node(name, f"test://{name}{'x' * size}")
        address = {"type": "InternalIP", "address": f"{name}{'y' * size}"}
        made.raw["status"] = {"addresses": [address]}
        backends.update(name, made)
        kept.add(backends.current())
        backends.update(name, None)
    took, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(kept) == 20
    assert took < 5 * size  # what is still named here
