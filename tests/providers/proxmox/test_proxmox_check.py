"""What `ccm-supervisor check` says of a token."""

from pathlib import Path

import pytest

from tests.providers.proxmox.served import ALL_RIGHTS, TOKEN, Served, config_of
from tests.providers.started import checked


@pytest.mark.parametrize(
    ("rights", "state", "words"),
    [
        (ALL_RIGHTS, "ok", "the cloud answers about instances"),
        (("Sys.Audit",), "warning", "one: VM.Audit on /vms, propagated"),
        ((), "warning", "one: VM.Audit on /vms, propagated, one: Sys.Audit on /"),
    ],
)
async def test_it_names_the_rights_that_are_missing(
    pve: Served, tmp_path: Path, rights: tuple[str, ...], state: str, words: str
) -> None:
    """PX13: although every read of such a token is answered."""
    pve.acl = {TOKEN: [("/", set(rights))]}
    (found,) = await checked("proxmox", config_of(pve.section()), tmp_path)
    assert (found.state, words in found.message) == (state, True), found


async def test_it_names_the_cluster_whose_token_is_wrong(
    pve: Served, other: Served, tmp_path: Path
) -> None:
    sections = pve.section("north"), other.section("south")
    for served in (pve, other):
        served.apitokens = {TOKEN: "another"}
    (found,) = await checked("proxmox", config_of(*sections), tmp_path)
    assert found.state == "failed"
    assert "north: ListMachines: 401 authentication failure" in found.message
