"""A vCenter with many machines, of which few are Nodes."""

import time
from collections.abc import Callable
from typing import Any

from ccm.model.cloud import Instance
from tests.labs.vsphere.lab import LABELS
from tests.providers.vsphere.conftest import Started, node_of
from tests.support.running import long

MACHINES, COUNT = 1000, 50


@long
async def test_a_thousand_machines_cost_what_a_few_do(new_lab: Callable[..., Any]) -> None:
    """VS2: for fifty Nodes as for all of them."""
    with new_lab("-vm", str(MACHINES)) as lab:
        cloud = await Started(lab.config(LABELS)).start()
        nodes = [node_of(one) for one in lab.machines().values()]
        for asked, most in ((nodes[:COUNT], 20), (nodes[:COUNT], 5), (nodes, 10)):
            lab.forget_calls()
            began = time.monotonic()
            answers = await cloud.describe(*asked)
            seconds, calls = time.monotonic() - began, lab.calls().total()
            print(f"{len(asked)} nodes of {MACHINES} machines: {calls} calls, {seconds:.2f} s")
            assert all(isinstance(one, Instance) for one in answers.values())
            assert calls <= most
        await cloud.close()
