"""Reading the pages of this tree: links, headings, code and the commands in it."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
ELSEWHERE = ("CONTRIBUTING.md", "SECURITY.md", "deploy/chart/README.md", "tests/README.md")
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md")), *(ROOT / name for name in ELSEWHERE)]
PROGRAMS = ("ccm-supervisor", "cloud-controller-manager")

_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"^ {4,}\S.*$", re.MULTILINE)
_SPAN = re.compile(r"`([^`]+)`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_ASSIGNED = re.compile(r'^ *([A-Z]+)="([^"]*)"$', re.MULTILINE)
_OPTIONAL = re.compile(r"(?<= )\[([^\[\]]*)\]")


@dataclass(frozen=True, slots=True)
class Page:
    """One Markdown file, cut into code and prose."""

    path: Path
    code: str
    prose: str

    @classmethod
    def read(cls, path: Path) -> "Page":
        text = path.read_text()
        fenced = [block.partition("\n")[2].rpartition("\n")[0] for block in _FENCED.findall(text)]
        rest = _FENCED.sub("", text)
        code = "\n".join([*fenced, *_INDENTED.findall(rest)]).replace("\\\n", " ")
        return cls(path, _with_variables(code), _INDENTED.sub("", rest))

    @property
    def spans(self) -> list[str]:
        """Code within a sentence, which may be broken into lines."""
        return [" ".join(span.split()) for span in _SPAN.findall(self.prose)]

    @property
    def links(self) -> list[str]:
        return _LINK.findall(_SPAN.sub("", self.prose))

    @property
    def headings(self) -> list[str]:
        return _HEADING.findall(self.prose)

    @property
    def anchors(self) -> set[str]:
        """What `#` can point to, as GitHub names it."""
        words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in self.headings)
        return {word.replace(" ", "-") for word in words}

    @property
    def programs(self) -> list[str]:
        """What the lines of shell begin with."""
        lines = _INDENTED.findall(_FENCED.sub("", self.path.read_text().replace("\\\n", " ")))
        words = [line.split()[0].rpartition("/")[2] for line in lines]
        return [word for word in words if re.fullmatch(r"[a-z][a-z0-9-]*", word)]

    @property
    def commands(self) -> list[tuple[str, list[str]]]:
        """Every call of one of our programs: its name and its arguments."""
        spans = [span for span in self.spans if span.partition(" ")[0] in PROGRAMS]
        lines = [*self.code.splitlines(), *spans]
        return [call for line in lines for variant in _variants(line) for call in _calls(variant)]


def page_name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def script(path: Path, heading: str = "") -> str:
    """The commands under a heading of a page, or before the first one, as they stand there."""
    text = path.read_text()
    rest = text.partition(f"\n## {heading}\n")[2] if heading else text
    section = _FENCED.sub("", rest.partition("\n## ")[0])
    return "\n".join(line[4:] for line in _INDENTED.findall(section))


def table_rows(page: str, table: str) -> list[list[str]]:
    """The cells of the marked table of a page, headings first."""
    text = (DOCS / page).read_text().split(f"<!-- table: {table} -->")[1].split("<!-- end -->")[0]
    lines = [line for line in text.strip().splitlines() if not line.startswith("|---")]
    return [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines]


def _with_variables(code: str) -> str:
    """The code with the text that it gave to a variable in place of the variable."""
    for name, text in _ASSIGNED.findall(code):
        code = code.replace(f"${name}", " ".join(text.split()))
    return _ASSIGNED.sub("", code)


def _variants(line: str) -> Iterator[str]:
    """The line with and without each `[optional]` part; of `[a|b]`, with each of them."""
    if not any(program in line for program in PROGRAMS):
        return
    parts = _OPTIONAL.split(line)
    choices = [[part] if number % 2 == 0 else _choices(part) for number, part in enumerate(parts)]
    yield from map("".join, product(*choices))


def _choices(optional: str) -> list[str]:
    """Nothing, or one of the alternatives; several words that are no option are for people."""
    is_option = optional.startswith("-")
    alternatives = optional.split("|")
    return ["", *(a for a in alternatives if a.startswith("-") or not (is_option or " " in a))]


def _calls(line: str) -> Iterator[tuple[str, list[str]]]:
    """The calls in one line of shell."""
    lexer = shlex.shlex(line.strip().removeprefix("$ "), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    command: list[str] = []
    for word in [*lexer, ";"]:
        if set(word) <= set("();<>|&"):
            yield from _call(command)
            command = []
        else:
            command.append(word)


def _call(command: list[str]) -> Iterator[tuple[str, list[str]]]:
    for place, word in enumerate(command):
        name = word.rpartition("/")[2]
        if name in PROGRAMS and (place == 0 or command[place - 1] == "--"):
            arguments = [a for a in command[place + 1 :] if "…" not in a and not a.startswith("$")]
            if arguments:
                yield name, arguments
            return


def leads_somewhere(source: Path, link: str) -> bool:
    """Whether a link of this page has a file, and a heading in it, at its other end."""
    if ":" in link:
        return True  # elsewhere in the world
    name, _, wanted = link.partition("#")
    target = (source.parent / name).resolve() if name else source
    if not target.is_relative_to(ROOT) or not target.exists():
        return False
    return not wanted or wanted in Page.read(target).anchors
