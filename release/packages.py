"""Source distribution and wheel: the same bytes whoever makes them, wherever and when."""

import gzip
import sys
import tarfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from release.tree import REQUIREMENTS, UV, copy_tree, epoch, run

BUILD = (UV, "build", "--quiet", "--no-create-gitignore", f"--python={sys.executable}")
PINNED = ("--require-hashes", f"--build-constraints={REQUIREMENTS / 'build.txt'}")


def make_packages(out: Path) -> tuple[Path, Path]:
    """The source distribution from this tree, and from nothing but that the wheel."""
    with TemporaryDirectory() as directory:
        source = copy_tree(Path(directory, "source"))
        run(*BUILD, *PINNED, "--sdist", f"--out-dir={directory}", source)
        (built,) = Path(directory).glob("*.tar.gz")
        out.mkdir(parents=True, exist_ok=True)
        sdist = out / built.name
        sdist.write_bytes(_normalized(built))
        time = {"SOURCE_DATE_EPOCH": str(epoch())}
        run(*BUILD, *PINNED, "--wheel", f"--out-dir={directory}", sdist, **time)
        (wheel,) = Path(directory).glob("*.whl")
        return sdist, wheel.rename(out / wheel.name)


def _normalized(archive: Path) -> bytes:
    """The same files, without who packed them, when, and under which umask."""
    with tarfile.open(archive) as old:
        files = {
            member.name: (source.read(), bool(member.mode & 0o100))
            for member in old
            if (source := old.extractfile(member))
        }
    return compressed(packed(files))


def packed(files: Mapping[str, tuple[bytes, bool]]) -> bytes:
    """An archive of these files, sorted: name → content, and whether it can be executed."""
    archive = BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, (content, is_executable) in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(content), epoch()
            member.mode = 0o755 if is_executable else 0o644
            tar.addfile(member, BytesIO(content))
    return archive.getvalue()


def compressed(content: bytes) -> bytes:
    """It, the same whenever it is done."""
    return gzip.compress(content, mtime=epoch())
