"""Which of several workers owns a key: rendezvous hashing, so that few keys move on a resize."""

from collections.abc import Sequence
from hashlib import blake2b


def owner(key: str, shards: Sequence[str]) -> str:
    """The shard that owns `key`; the same answer in every process and on every host."""
    if len(shards) == 1:
        return shards[0]
    return max(shards, key=lambda shard: blake2b(f"{shard}/{key}".encode(), digest_size=8).digest())
