"""`python -m tests.integration.status_page docs`: pictures of the page in the middle of trouble."""

import asyncio
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from .browser import MISSING, find, opened
from .scene import played

PICTURES = (
    # file, width, scale, theme
    ("page.png", 1120, 0.6, "light"),
    ("page-768-dark.png", 768, 0.6, "dark"),
    ("page-360.png", 360, 0.8, "light"),
)


async def main(pictures: Path) -> None:
    with TemporaryDirectory() as directory:
        async with (
            played(Path(directory), "audit of the cloud account") as scene,
            opened(find() or sys.exit(MISSING), Path(directory)) as tab,
        ):
            await tab.show(scene.url)
            for name, width, scale, theme in PICTURES:
                await tab.theme(theme)
                await tab.resize(width, height=1500, scale=scale)
                await tab.picture(pictures / name)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
