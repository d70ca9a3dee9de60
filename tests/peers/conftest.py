"""What upstream's readers of configurations make of a text."""

from collections.abc import Iterator

import pytest

from tests.peers.config_readers import GoReaders, go_readers
from tests.support.kube.build import CONFIG_READERS, find_binaries
from tests.support.needed import needed


@pytest.fixture(scope="module")
def go() -> Iterator[GoReaders]:
    program = needed(find_binaries(CONFIG_READERS), "run `make peers`")
    with go_readers(program) as readers:
        yield readers
