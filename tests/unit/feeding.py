"""Frames of the feed for tests."""

from typing import Any

from ccm.bus.frames import Objects

Entry = list[Any]  # kind, key, version, value


def frame(seq: int, *entries: Entry, epoch: int = 1, complete: bool = False) -> Objects:
    return Objects(epoch, seq, complete=complete, entries=list(entries), moved=[])


def snapshot(*entries: Entry, epoch: int = 1) -> Objects:
    """A snapshot that fits one frame."""
    return frame(1, *entries, epoch=epoch, complete=True)
