"""`ccm-supervisor manifests`: what to apply to run the supervisor inside the cluster."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from ccm import __version__
from ccm.cli.completion import start_flags as complete_start_flags
from ccm.cli.reporting import example, say, say_json
from ccm.printable import printable
from ccm.settings import Reading, flags, read, read_arguments

IMAGE = f"ccm-supervisor:{__version__}"
"""What manifests call the image, and what its archive says that it is."""


@click.command(
    context_settings={"ignore_unknown_options": True},
    epilog=example("ccm-supervisor manifests --kind=deployment -- --cloud-provider=aws"),
)
@click.option(
    "--kind",
    type=click.Choice(["daemonset", "deployment", "none"]),
    default="daemonset",
    show_default=True,
    help="What keeps the Pods running; none prints no Pods, for a start outside of the cluster.",
)
@click.option("--namespace", default="kube-system", show_default=True, help="Where they run.")
@click.option("--image", default=IMAGE, show_default=True)
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
@click.option(
    "--node-selector",
    default="node-role.kubernetes.io/control-plane=",
    show_default=True,
    metavar="KEY=VALUE[,…]",
    help="Labels of the nodes that Pods run on; an empty text for any node.",
)
@click.option(
    "-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True
)
@click.argument(
    "start_flags",
    nargs=-1,
    type=click.UNPROCESSED,
    metavar="-- [FLAGS OF start]",
    shell_complete=complete_start_flags,
)
def manifests(start_flags: Sequence[str], output: str, node_selector: str, **options: Any) -> None:
    """Print service accounts, RBAC rules and Pods, to be applied.

    They are for a supervisor with these flags of 'start'.
    """
    from ccm.cloud.registry import check_name
    from ccm.manifests.rbac import rbac, subjects
    from ccm.manifests.workload import Workload, to_yaml, workload

    reading = read(read_arguments(start_flags), {})
    settings = reading.settings
    check_name(settings.cloud_provider)
    labels = _labels(node_selector)
    wanted = Workload(**options, node_selector=labels, arguments=[*_arguments(reading)])
    objects = [*rbac(subjects(settings, wanted.namespace), settings)]
    if wanted.kind != "none":
        objects += workload(wanted, settings)
    if output == "json":
        say_json({"apiVersion": "v1", "kind": "List", "items": [each.body for each in objects]})
        return
    command = ["ccm-supervisor", "manifests", *_own_options(), "--", *wanted.arguments]
    say(*to_yaml(f"Rendered by: {printable(shlex.join(command))}", objects).splitlines())


def _labels(text: str) -> Mapping[str, str]:
    parts = [part.partition("=") for part in text.split(",") if text]
    if wrong := [key for key, equals, _ in parts if not (key and equals)]:
        problem = f"{', '.join(map(repr, wrong))} is not KEY=VALUE"
        raise click.BadParameter(problem, param_hint="'--node-selector'")
    return {key: value for key, _, value in parts}


def _arguments(reading: Reading) -> Iterator[str]:
    """The flags of `start`, in the order of its help; those of a file, which no Pod has, too."""
    for flag in flags():
        if flag.field != "config" and flag.field in reading.raw_values:
            for text in reading.raw_values[flag.field].texts:
                yield f"{flag.label}={text}"


def _own_options() -> Iterator[str]:
    """Our own options that are not at their defaults."""
    ctx = click.get_current_context()
    for option in ctx.command.params:
        value = ctx.params[str(option.name)]
        if isinstance(option, click.Option) and value != option.default:
            yield f"{option.opts[0]}={value}"
