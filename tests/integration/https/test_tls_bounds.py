"""What the TLS of a client may cost: all of it runs in the loop that renews the Lease."""

import asyncio
import os

import pytest

from tests.integration.https.hostile_tls import client_hello, is_answered
from tests.integration.https.review_api import ReviewApi
from tests.integration.https.served import serving

P256, P384, X25519 = 23, 24, 29
FINITE_FIELDS = {0x102: 4096, 0x103: 6144, 0x104: 8192}  # groups and the bits of their keys


@pytest.mark.parametrize("curves", [(), (P384,), (X25519,), (X25519, P256)])
async def test_no_client_chooses_a_key_exchange_that_takes_long(
    reviews: ReviewApi, curves: tuple[int, ...]
) -> None:
    """With 8,192 bits one takes 0.1 s of the server, and nothing of a client that made it up."""
    async with serving(reviews, tls_curve_preferences=curves) as server:
        for group, bits in FINITE_FIELDS.items():
            hello = client_hello([group], {group: b"\x01" + os.urandom(bits // 8 - 1)})
            assert not await asyncio.to_thread(is_answered, server.port, hello)
        common = client_hello([X25519, P256, P384], {X25519: os.urandom(32)})
        assert await asyncio.to_thread(is_answered, server.port, common)
