"""`ccm-supervisor manifests`: what to apply so that the supervisor runs inside the cluster."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from ccm import __version__
from ccm.errors import ConfigurationFaults, ExitCode
from ccm.settings import Reading, flags, read, read_arguments

if TYPE_CHECKING:
    from ccm.manifests.rbac import Document
    from ccm.manifests.workload import Workload


@click.command(
    context_settings={"ignore_unknown_options": True, "max_content_width": 100},
)
@click.option(
    "--kind",
    type=click.Choice(["daemonset", "deployment", "none"]),
    default="daemonset",
    show_default=True,
    help="What keeps the Pods running; none prints no Pods, for a start outside of the cluster.",
)
@click.option("--namespace", default="kube-system", show_default=True, help="Where they run.")
@click.option("--image", default=f"ccm-supervisor:{__version__}", show_default=True)
@click.option(
    "--replicas", type=click.IntRange(min=1), default=2, show_default=True, help="Of a Deployment."
)
@click.option(
    "--cloud-config-secret",
    "secret",
    default="cloud-config",
    show_default=True,
    metavar="NAME",
    help="Secret that is mounted where --cloud-config is; its key is the name of that file.",
)
@click.argument("start_flags", nargs=-1, type=click.UNPROCESSED, metavar="-- [FLAGS OF start]")
def manifests(start_flags: Sequence[str], **options: Any) -> None:
    """Print service accounts, least rights and Pods, as YAML, for these flags of 'start'.

    \b
    ccm-supervisor manifests --kind=deployment -- \\
        --cloud-provider=NAME --controllers='*,-route' --use-service-account-credentials
    """
    from ccm.manifests.text import text
    from ccm.manifests.workload import Workload

    try:
        reading = read(read_arguments(start_flags), {})
        wanted = Workload(**options, arguments=[*_given(reading)])
        documents = [*_documents(wanted, reading)]
    except ConfigurationFaults as faults:
        for fault in faults.faults:
            click.echo(f"ccm-supervisor: {fault}", err=True)
        sys.exit(ExitCode.CONFIGURATION)
    command = ["ccm-supervisor", "manifests", *_chosen(), "--", *wanted.arguments]
    click.echo(text(f"Rendered by: {shlex.join(command)}", documents), nl=False)


def _documents(wanted: "Workload", reading: Reading) -> "Iterator[Document]":
    from ccm.manifests.rbac import rbac
    from ccm.manifests.subjects import subjects
    from ccm.manifests.workload import workload

    settings = reading.settings
    yield from rbac(subjects(settings, wanted.namespace), settings)
    if wanted.kind != "none":
        yield from workload(wanted, settings)


def _given(reading: Reading) -> Iterator[str]:
    """The flags of `start`, in the order of its help; those of a file, which no Pod has, too."""
    for flag in flags():
        if flag.field != "config" and flag.field in reading.given:
            for text in reading.given[flag.field].texts:
                yield f"--{flag.name}={text}"


def _chosen() -> Iterator[str]:
    """Our own options that are not at their defaults."""
    ctx = click.get_current_context()
    for option in ctx.command.params:
        value = ctx.params[str(option.name)]
        if isinstance(option, click.Option) and value != option.default:
            yield f"{option.opts[0]}={value}"
