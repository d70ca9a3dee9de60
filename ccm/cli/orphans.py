"""`ccm-supervisor orphans`: what is ours in the cloud and belongs to no object any more."""

import asyncio
import os
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from ccm.cli.completion import TakesStartFlags
from ccm.cli.reporting import Group, example, fail, output_option, say, say_document

if TYPE_CHECKING:
    from ccm.decide.orphans import Orphan
    from ccm.settings import Reading


LISTED = example("ccm-supervisor orphans list --cloud-provider=aws --cloud-config=cloud.conf")


@click.group(cls=Group, epilog=LISTED)
def orphans() -> None:
    """Find load balancers and routes that no object asks for any more."""


@orphans.command(
    "list",
    cls=TakesStartFlags,
    context_settings={"ignore_unknown_options": True},
    epilog=LISTED,
)
@output_option("text")
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def list_orphans(output: str, flags: tuple[str, ...]) -> None:
    """List them; nothing is changed. Takes the FLAGS of `start`."""
    from ccm.checks.finding import NotChecked
    from ccm.settings import read, read_arguments

    try:
        found = asyncio.run(_find(read(read_arguments(flags), os.environ)))
    except NotChecked as error:
        fail([error])
    if output != "text":
        say_document("orphans/v1", {"orphans": [asdict(item) for item in found]}, output)
        return
    say(*(f"{item.kind} {item.name}: {item.why}" for item in found))
    say(f"orphans: {len(found) or 'none'}")


async def _find(reading: "Reading") -> "list[Orphan]":
    """The cloud is listed before the cluster: what is created in between is no orphan."""
    from ccm.checks.api_server import list_nodes, list_services
    from ccm.checks.cloud import start_provider
    from ccm.checks.context import CheckContext
    from ccm.cloud.gate import invoke
    from ccm.cloud.interface import ListsOwned
    from ccm.decide.orphans import Orphan, orphaned_balancers, orphaned_routes
    from workers.main import require_cluster_id

    context = CheckContext(reading.settings, reading.raw_values)
    try:
        provider, found = await start_provider(context), list[Orphan]()
        if not reading.settings.allow_untagged_cloud:
            require_cluster_id(provider, reading.settings)
        balancers: object = provider.load_balancers
        if isinstance(balancers, ListsOwned):
            found += orphaned_balancers(await invoke(balancers.owned), await list_services(context))
        elif balancers:
            line = f"ccm-supervisor: provider {provider.name} cannot list its load balancers"
            say(line, err=True)
        if provider.routes:
            nodes = await list_nodes(context)
            found += orphaned_routes(await invoke(provider.routes.list, nodes), nodes)
        return found
    finally:
        await context.close()
