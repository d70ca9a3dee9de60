"""What `ccm-supervisor check` says of a token."""

from pathlib import Path

from tests.labs.digitalocean.server import OTHER_TOKEN, TOKEN, VPC, DigitalOcean
from tests.providers.digitalocean.adapter import config_of
from tests.providers.started import checked


async def test_it_names_the_scopes_that_are_missing(do: DigitalOcean, tmp_path: Path) -> None:
    async def reported() -> list[str]:
        found = await checked("digitalocean", config_of(do), tmp_path)
        return [one.message for one in found if one.state != "ok"]

    assert await reported() == []
    do.denied = "/v2/certificates"
    (lack,) = await reported()
    assert "certificate:read" in lack
    do.tokens.clear()
    assert any("401" in message for message in await reported())


async def test_it_tells_of_a_vpc_that_the_token_does_not_see(
    do: DigitalOcean, tmp_path: Path
) -> None:
    """Another team's token gets lists without our droplets, and no error."""

    async def reported(text: str) -> list[str]:
        found = await checked("digitalocean", text, tmp_path)
        return [one.message for one in found if one.state != "ok"]

    ours = config_of(do, f"vpc-id = {VPC}")
    assert await reported(ours) == []
    (lack,) = await reported(ours.replace(TOKEN, OTHER_TOKEN))
    assert f"VPC {VPC}" in lack
    do.denied = "/v2/vpcs"
    (lack,) = await reported(ours)
    assert "vpc:read" in lack
