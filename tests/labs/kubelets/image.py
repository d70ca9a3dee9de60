"""`python -m tests.labs.kubelets.image PROGRAM NAME ARCHIVE`: an image of one static program."""

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from release import debian
from release.oci import image_archive


def main(program: Path, name: str, archive: Path) -> None:
    config = {"Entrypoint": [f"/{program.name}"], "User": "65532:65532"}
    with TemporaryDirectory() as directory:
        shutil.copy2(program, directory)
        _, content = image_archive(Path(directory), debian.host_architecture(), config, name)
    archive.write_bytes(content)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
