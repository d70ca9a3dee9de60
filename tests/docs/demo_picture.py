"""`python -m tests.docs.demo_picture FILE`: the demo after its scenario, as an SVG for README."""

import asyncio
import re
import shutil
import sys
from io import StringIO
from pathlib import Path

from rich.console import Console

from ccm.cli.sandbox_view import view
from ccm.sandbox.cluster import Sandbox, SandboxOptions
from ccm.sandbox.scenario import Scenario
from ccm.sandbox.story import Story
from tests.support.deadlines import within

WIDTH, HEIGHT = 100, 38
DIRECTORY = Path("/tmp/ccm-demo")
NOT_WANTED = re.compile(r"@font-face \{.*?\}|<!--.*?-->", re.DOTALL)  # fonts of another host


async def main(file: Path) -> None:
    try:
        async with Sandbox(SandboxOptions(str(DIRECTORY), 6, 2, 0.0)) as sandbox:
            story = Story(sandbox)
            looking = asyncio.create_task(story.run())
            async with within(), asyncio.TaskGroup() as group:
                group.create_task(sandbox.add_nodes())
                group.create_task(Scenario(sandbox, story).run())
            looking.cancel()
            shown = view(sandbox, await sandbox.status(), story.events)
    finally:
        shutil.rmtree(DIRECTORY, ignore_errors=True)
    console = Console(record=True, width=WIDTH, height=HEIGHT, file=StringIO())
    console.print(shown)
    svg = console.export_svg(title="make demo", unique_id="demo")
    file.write_text(NOT_WANTED.sub("", svg))


if __name__ == "__main__":
    sys.argv[0], path = "ccm-supervisor", Path(sys.argv[1])
    asyncio.run(main(path))
