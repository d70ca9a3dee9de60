"""The hosts of all Services: which changes of a Node are a change of hosts."""

import re

from ccm.cloud.testkit.harness import node
from ccm.model.objects import Node
from workers.service.hosts import HostSet
from workers.timings import Timings


def labelled(**labels: str) -> Node:
    made = node("node-1", "test://1")
    made.raw["metadata"]["labels"] = labels
    return made


def test_a_label_counts_once_a_service_chooses_by_it() -> None:
    hosts = HostSet(re.compile("test://.*"), lambda name: "", Timings())
    hosts.update("node-1", labelled(pool="a"))
    before = hosts.current()
    hosts.update("node-1", labelled(pool="b"))
    assert hosts.current() == before
    hosts.choose_by(["pool"])
    chosen = hosts.current()
    hosts.update("node-1", labelled(pool="b", other="x"))
    assert hosts.current() == chosen
    hosts.update("node-1", labelled(pool="a"))
    assert hosts.current() != chosen
