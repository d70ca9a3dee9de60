"""The commands about the command itself: its version, and how a shell completes it."""

import platform

import click

from ccm import __version__
from ccm.cli.reporting import example, output_option, say, say_document

SHELLS = ("bash", "zsh", "fish")


@click.command(epilog=example("ccm-supervisor version -o json"))
@output_option("text")
def version(output: str) -> None:
    """Print the version."""
    if output == "text":
        say(f"ccm-supervisor {__version__}")
    else:
        python, system = platform.python_version(), platform.platform()
        document = {"version": __version__, "python": python, "platform": system}
        say_document("version/v1", document, output)


@click.command(
    epilog=example(
        "source <(ccm-supervisor completion bash)   # in ~/.bashrc; for zsh in ~/.zshrc",
        "ccm-supervisor completion fish > ~/.config/fish/completions/ccm-supervisor.fish",
    )
)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print what makes a shell complete commands and flags."""
    from click.shell_completion import get_completion_class

    kind, program = get_completion_class(shell), "ccm-supervisor"
    assert kind is not None
    command = click.get_current_context().find_root().command
    script = kind(command, {}, program, "_CCM_SUPERVISOR_COMPLETE").source()
    say(*script.splitlines())
