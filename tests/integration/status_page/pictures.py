"""Pictures of the page at the sizes of a phone, a tablet and a desk."""

from dataclasses import dataclass
from pathlib import Path

from .browser import Tab

LARGEST_BYTES = 160_000


@dataclass(frozen=True, slots=True)
class Picture:
    """A file below `docs/`, the size of the window, how dense its pixels are, and the theme."""

    name: str
    width: int
    height: int
    scale: float
    theme: str = "light"


PICTURES = (
    Picture("page.png", 1120, 1500, 0.6),
    Picture("page-768-dark.png", 768, 1500, 0.6, "dark"),
    Picture("page-360.png", 360, 1500, 0.8),
)


async def take(tab: Tab, picture: Picture, directory: Path) -> Path:
    """Write it; the tab shows the page already."""
    await tab.theme(picture.theme)
    await tab.resize(picture.width, picture.height, scale=picture.scale)
    file = directory / picture.name
    await tab.picture(file)
    return file
