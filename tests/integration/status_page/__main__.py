"""`python -m tests.integration.status_page docs`: pictures of the page in the middle of trouble."""

import asyncio
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from .browser import MISSING, find, opened
from .pictures import PICTURES, take
from .scene import played


async def main(pictures: Path) -> None:
    with TemporaryDirectory() as directory:
        async with (
            played(Path(directory), "audit of the cloud account") as scene,
            opened(find() or sys.exit(MISSING), Path(directory)) as tab,
        ):
            await tab.show(scene.url)
            for picture in PICTURES:
                await take(tab, picture, pictures)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
