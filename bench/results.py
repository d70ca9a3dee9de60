"""The last figures of each part, kept as JSON lines and shown as RESULTS.md."""

import platform
import sys
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson

from bench.figures import table
from bench.plan import Measured, Plan
from tests.support.kube.build import find_binaries

HERE = Path(__file__).parent
LINES = HERE / "results.jsonl"
PAGE = HERE / "RESULTS.md"
TITLE = """# What was measured last

`make bench` writes this page; `docs/performance.md` says what the figures mean. A figure is
`median (least–most)` where a side ran several times; the sides of a comparison take turns.
"""
NO_SIZES = ("sides", "runs", "profiles")  # of a plan
PACKAGES = ("aiohttp", "orjson", "pyzmq", "kubernetes")


def keep(part: str, about: str, plan: Plan, found: Measured) -> None:
    """Remember what was found in place of what was found before."""
    record = {
        "part": part,
        "about": " ".join(about.split()),
        "machine": machine(),
        "plan": sizes(plan),
        "rows": found.rows,
        "broken": found.broken,
    }
    records = {**{known["part"]: known for known in recorded()}, part: record}
    LINES.write_bytes(b"".join(orjson.dumps(known) + b"\n" for known in records.values()))
    PAGE.write_text(page(recorded()))


def sizes(plan: Plan) -> dict[str, Any]:
    """What shows how large a run was; of several pieces, each row has how often it was."""
    left_out = (*NO_SIZES, "repeats") if plan.runs else NO_SIZES
    return {name: value for name, value in asdict(plan).items() if name not in left_out}


def page(records: Iterable[dict[str, Any]]) -> str:
    """The records as Markdown, a section each."""
    return "\n".join([TITLE, *map(_section, records)])


def recorded() -> list[dict[str, Any]]:
    """What was found last, a record for each part that ever ran."""
    return (
        [orjson.loads(line) for line in LINES.read_bytes().splitlines()] if LINES.exists() else []
    )


def machine() -> str:
    """Where, when and with what."""
    model = next(
        (line.partition(": ")[2] for line in _lines("/proc/cpuinfo") if "model name" in line), "?"
    )
    memory = int(_lines("/proc/meminfo")[0].split()[1]) >> 20
    binaries = find_binaries()
    servers = binaries.parent.name if binaries else "?"
    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC; {len(_cores())} cores ({model}), {memory} GiB, "
        f"{platform.system()} {platform.release()}; Kubernetes {servers}; "
        f"Python {sys.version.split()[0]}, {packages}"
    )


def _section(record: dict[str, Any]) -> str:
    sizes = ", ".join(f"{name} {value}" for name, value in record["plan"].items())
    broken = "".join(f"\n**Broken:** {line}\n" for line in record["broken"])
    return (
        f"## {record['part']}\n\n{record['about']}\n\n{table(record['rows'])}\n{broken}\n"
        f"{record['machine']}. {sizes}.\n"
    )


def _cores() -> list[str]:
    return [line for line in _lines("/proc/cpuinfo") if line.startswith("processor")]


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()
