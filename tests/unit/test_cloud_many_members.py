"""Load balancers whose ports have members of their own."""

import threading

import pytest

from ccm.cloud.many_members import MANY_MEMBERS, MOST_MEMBERS, check_members, compute
from ccm.errors import Refused


async def test_few_members_cost_no_thread_and_many_keep_no_one_waiting() -> None:
    here = threading.get_ident()
    assert await compute(MANY_MEMBERS - 1, threading.get_ident) == here
    assert await compute(MANY_MEMBERS, threading.get_ident) != here


def test_more_members_than_any_load_balancer_takes_are_refused() -> None:
    """A tenant has as many ports as node ports are left, in a cluster of thousands of Nodes."""
    check_members(MOST_MEMBERS // 2000, 2000)
    with pytest.raises(Refused, match="give each part of the ports a Service of its own"):
        check_members(MOST_MEMBERS // 2000 + 1, 2000)
