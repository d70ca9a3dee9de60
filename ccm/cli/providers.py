"""The providers there are, and `provider new NAME`: a working package to start another from."""

import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from shlex import quote
from string import Template

import click
import orjson

from ccm.cli.reporting import Group, example, output_option, say, say_document

TEMPLATES = Path(__file__).parent / "new_provider"
SUFFIX = ".tmpl"
PACKAGE = "package"
"""The folder of the templates that becomes the Python package."""
MORE = re.compile(r"^#\[\n(.*?)^#\]\n", re.MULTILINE | re.DOTALL)
"""Lines of a template, or a whole one, for all but machines."""

NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
MAX_NAME_LENGTH = 40
NO_CLOUD = "external"
"""Upstream's word for `--cloud-provider` where there is no provider in the process."""


NEW = example("ccm-supervisor provider new my-cloud")


@click.command(epilog=example("ccm-supervisor providers"))
@output_option("text")
def providers(output: str) -> None:
    """List the names that --cloud-provider accepts."""
    from ccm.cloud.registry import known_providers

    if output == "text":
        say(*known_providers())
    else:
        say_document("providers/v1", {"providers": known_providers()}, output)


@click.group(cls=Group, epilog=NEW)
def provider() -> None:
    """Write a provider for another cloud."""


@provider.command(epilog=NEW)
@click.argument("name")
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    help="Where to write it; new or empty.  [default: ccm-provider-NAME]",
)
@click.option("--nodes-only", is_flag=True, help="Without load balancers, routes and volumes.")
def new(name: str, directory: Path | None, nodes_only: bool) -> None:
    """Write a package to start from: it works, with a stand-in for the cloud.

    It can be installed and passes the conformance kit. NAME is what --cloud-provider will be: small
    letters, digits and single dashes.
    """
    check_name(name)
    target = directory or Path(f"ccm-provider-{name}")
    files = dict(rendered(name, nodes_only))
    try:
        if target.exists() and any(target.iterdir()):
            raise click.ClickException(f"{target} is not empty: name another with --directory")
        write(target, files)
    except OSError as error:
        raise click.ClickException(f"{target} cannot be written: {error.strerror}") from error
    say(f"{len(files)} files in {target}; README.md shows where your cloud's calls go. Next:")
    steps = (f"cd {quote(str(target))}", "python3 -m venv .venv")
    install = f".venv/bin/pip install {quote(source())} -e '.[test]'"
    say(*(f"  {step}" for step in (*steps, install, ".venv/bin/pytest")))


def source() -> str:
    """What pip is to install ccm-supervisor from: a path if this one was, else this version."""
    try:
        here = distribution("ccm-supervisor")
    except PackageNotFoundError:
        return "ccm-supervisor"
    url = orjson.loads(here.read_text("direct_url.json") or "{}").get("url", "")
    return f"ccm-supervisor @ {url}" if url else f"ccm-supervisor=={here.version}"


def check_name(name: str) -> None:
    """Raise click's error for what cannot be the name of a new provider."""
    from ccm.cloud.registry import known_providers

    if not NAME.fullmatch(name) or len(name) > MAX_NAME_LENGTH:
        raise click.BadParameter(
            f"{name!r}: use small letters, digits and single dashes between them, a letter first, "
            f"at most {MAX_NAME_LENGTH} characters",
            param_hint="NAME",
        )
    if name == NO_CLOUD:
        raise click.BadParameter(f"{name!r} means that there is no provider", param_hint="NAME")
    if name in known_providers():
        raise click.BadParameter(f"there is a provider {name!r} already", param_hint="NAME")


def rendered(name: str, nodes_only: bool = False) -> Iterator[tuple[Path, str]]:
    """Each file of the package for the provider `name`, by its path in there."""
    module = f"ccm_provider_{name.replace('-', '_')}"
    class_name = "".join(word.capitalize() for word in name.split("-"))
    for template in sorted(TEMPLATES.rglob(f"*{SUFFIX}")):
        first, *rest = template.relative_to(TEMPLATES).parts
        path = Path(module if first == PACKAGE else first, *rest)
        text = MORE.sub("" if nodes_only else r"\1", template.read_text())
        if text:
            filled = Template(text).substitute(name=name, module=module, class_name=class_name)
            yield path.with_suffix(""), filled


def write(target: Path, files: dict[Path, str]) -> None:
    """Write new files; one that is there already is an OSError and stays as it is."""
    for path, text in files.items():
        place = target / path
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("x") as file:
            file.write(text)
