"""One controller makes everything, and another takes over: what is seen on the way."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.peers.cases import LAST
from tests.peers.picture import Picture, picture, renamer
from tests.peers.world import OURS, UPSTREAM, World


@dataclass
class Play:
    """The pictures of the stages, and what the second one wrote only because it took over."""

    pictures: dict[str, Picture] = field(default_factory=dict)
    writes: list[str] = field(default_factory=list)
    alone: list[str] = field(default_factory=list)
    """The stages at which only the first one has been there."""
    served: set[str] = field(default_factory=set)
    """The Services that have a listener of their last port after the second one's update."""


def play_both(
    new_world: Callable[[Path], AbstractContextManager[World]], folders: pytest.TempPathFactory
) -> dict[str, Play]:
    """By who begins: each play is in a world of its own."""
    done: dict[str, Play] = {}
    for first, second in ((UPSTREAM, OURS), (OURS, UPSTREAM)):
        with new_world(folders.mktemp(first)) as world:
            done[first] = play(world, first, second)
    return done


def play(world: World, first: str, second: str) -> Play:
    """`first` makes everything and changes it; `second` takes over, changes all and deletes it."""
    done = make(world, first)
    take_over(world, done, first, second)
    return done


def make(world: World, first: str) -> Play:
    """The first half of it."""
    done = Play()
    world.prepare()
    for config in world.node_configs:
        world.join_all()
        with world.at_work(first, config):
            world.settle()
            done.pictures[config] = picture(world)
        world.leave_all()
    world.join_all()
    refused = world.cases.refused
    with world.at_work(first):
        world.settle()  # of Nodes that come as a balancer is made, upstream forgets some
        world.make_services()
        world.settle(refused(first, 0))
        done.pictures["made"] = picture(world)
        world.change_nodes()
        world.settle(refused(first, 0))
        world.change()
        world.settle(refused(first, 1))
        done.pictures["changed"] = picture(world)
    if world.last_config:
        world.forget_calls()
        with world.at_work(first, world.last_config):
            world.settle(refused(first, 1), world.looking)
            done.pictures[world.last_config] = picture(world)
    done.alone = list(done.pictures)
    return done


def take_over(world: World, done: Play, first: str, second: str) -> None:
    refused = world.cases.refused_after(first, second)
    before = renamer(world)
    world.forget_calls()
    with world.at_work(second, world.last_config):
        world.settle(world.cases.refused(first, 1) | refused, world.looking)
        after = renamer(world)
        done.writes = [after(before(one)) for one in world.writes()]
        done.pictures["taken over"] = picture(world)
        world.update()
        world.settle(refused)
        updated = done.pictures["updated"] = picture(world)
        chosen = world.cases.chosen
        done.served = {one for one in chosen if world.is_served(one, LAST, updated.keys())}
        world.clear()
        world.settle(refused)
        done.pictures["deleted"] = picture(world)
