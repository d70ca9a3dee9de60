"""`python -m tests.docs.prose`: Vale over the pages, and over what the code shows to people.

The texts of the code are the help of every command and flag, the docstrings of the provider
interface, and each other string of three words or more: errors, Events, logs, the status page. Each
stands in a copy of its file, on its line, so that Vale names the place. What only those read who
change the code, docstrings and comments, has fewer rules (`styles/Code`).
"""

import ast
import io
import re
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from ccm.cli.main import main as program
from ccm.cloud import interface
from tests.docs.calls import all_commands
from tests.docs.pages import ROOT
from tests.support.kube.build import LINTERS, build_binaries

CONFIG = Path(__file__).with_name("vale.ini")
PAGES = (":(glob)*.md", "docs", ".github", "deploy", "systemd", "tests")
CODE = ("ccm", "workers")
PROSE = re.compile(r"[a-z]{2,}[,;:]? [a-z]{2,}[,;:]? [a-z]{2,}", re.IGNORECASE)


def pages() -> list[str]:
    """Every page of the repository, and the release notes."""
    listed = subprocess.run(
        ["git", "ls-files", "--", *PAGES], cwd=ROOT, capture_output=True, text=True
    )
    return [name for name in listed.stdout.splitlines() if name.endswith(".md")]


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each string that is prose and no docstring, with Xx for each value."""
    tree = ast.parse(source)
    skipped = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)
    }  # docstrings
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped.update(map(id, node.values))
            text = "".join(
                str(part.value) if isinstance(part, ast.Constant) else "Xx" for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if (
            id(node) not in skipped
            and PROSE.search(text)
            and "<" not in text
            and text.count("\n") < 4
        ):
            yield node.lineno, " ".join(text.split()).rstrip(".:") + "."


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each line of a docstring, and of each comment."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")
        elif token.type == tokenize.STRING and token.string.startswith('"""'):
            yield from enumerate(token.string.strip('"').splitlines(), token.start[0])


def write_texts(folder: Path) -> None:
    """Write the texts of the code below `folder`, each file beside where it is in the tree."""
    for path in sorted(path for part in CODE for path in (ROOT / part).rglob("*.py")):
        for suffix, found in ((".txt", texts), (".comments", comments)):
            lines = dict[int, str]()
            for number, text in found(path.read_text()):
                lines[number] = f"{lines[number]} {text}" if number in lines else text
            if lines:
                target = folder / path.relative_to(ROOT).with_suffix(suffix)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(
                    "".join(f"{lines.get(number, '')}\n" for number in range(1, max(lines) + 1))
                )
    contexts = [click.Context(program), *all_commands(program, click.Context(program))]
    helps = [f"{ctx.command.help or ''}\n\n" for ctx in contexts]
    (folder / "help.txt").write_text("".join(helps))
    (folder / "interface.txt").write_text("\n\n".join(_docstrings(interface.__file__)))


def _docstrings(path: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(Path(path).read_text())):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield ast.get_docstring(node) or ""


def main(arguments: Sequence[str]) -> int:
    """Run Vale, with these arguments of its own, and return its exit code."""
    vale = build_binaries(LINTERS) / "vale"
    with tempfile.TemporaryDirectory(prefix="prose-") as folder:
        write_texts(Path(folder))
        command = [str(vale), f"--config={CONFIG}", *arguments, *pages(), folder]
        return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
