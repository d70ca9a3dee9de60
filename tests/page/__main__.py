"""`python -m tests.page docs/page.png`: a picture of the page, while several things are wrong."""

import asyncio
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from .browser import MISSING, find, opened
from .scene import played


async def main(file: Path) -> None:
    with TemporaryDirectory() as directory:
        async with (
            played(Path(directory), "audit of the cloud account") as scene,
            opened(find() or sys.exit(MISSING), Path(directory)) as tab,
        ):
            await tab.show(scene.url)
            await tab.resize(1120, scale=0.8)
            await tab.picture(file)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
