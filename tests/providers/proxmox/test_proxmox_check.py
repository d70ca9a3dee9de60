"""What `ccm-supervisor check` says of a token."""

from pathlib import Path

import pytest

from ccm.checks.cloud import check_reads
from ccm.checks.context import CheckContext
from ccm.settings import Settings
from tests.providers.proxmox.served import ALL_RIGHTS, TOKEN, Served, config_of


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
    file = tmp_path / "proxmox.yaml"
    file.write_text(config_of(pve.section()))
    settings = Settings(cloud_provider="proxmox", cloud_config=str(file), kubeconfig="/nowhere")
    context = CheckContext(settings, {})
    try:
        (found,) = await check_reads(context)
    finally:
        await context.close()
    assert (found.state, words in found.message) == (state, True), found
