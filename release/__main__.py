"""`python -m release WHAT`: make and check what is published, below `dist`."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from release import debian
from release.chart import archive, made_files
from release.check import faults, write_sums
from release.image import make_image
from release.packages import make_packages
from release.tree import ROOT, ReleaseError


@click.group()
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "dist", help="Where to.")
@click.pass_context
def main(ctx: click.Context, out: Path) -> None:
    """Make what is published."""
    ctx.obj = out


@main.command()
@click.pass_obj
def packages(out: Path) -> None:
    """The source distribution and the wheel."""
    for path in make_packages(out):
        click.echo(path)


@main.command()
@click.pass_obj
def chart(out: Path) -> None:
    """The Helm chart: in its folder what follows from the code, and its archive."""
    for path, text in made_files():
        path.write_text(text)
    name, content = archive()
    out.mkdir(parents=True, exist_ok=True)
    (out / name).write_bytes(content)
    click.echo(out / name)


@main.command()
@click.option(
    "--architecture", type=click.Choice([*debian.PLATFORMS]), help="By default this host's."
)
@click.pass_obj
def image(out: Path, architecture: str | None) -> None:
    """The image as an archive, and what it is made of beside it."""
    for path in make_image(out, architecture or ""):
        click.echo(path)


@main.command()
def lock() -> None:
    """Pin the packages of Debian in the image at their newest versions."""
    for architecture in debian.PLATFORMS:
        with TemporaryDirectory() as work:
            pins = debian.lock(Path(work), architecture)
        debian.lock_file(architecture).write_text(pins)


@main.command()
@click.pass_obj
def check(out: Path) -> None:
    """Whether all of it is there and right; the hashes that are signed."""
    if found := [*faults(out)]:
        raise ReleaseError("\n".join(found))
    click.echo(write_sums(out))


if __name__ == "__main__":
    try:
        main()
    except ReleaseError as error:
        sys.exit(f"error: {error}")
