"""How a token reaches its worker: in a file that only our user can read, never over the bus."""

import os
from pathlib import Path


class TokenFiles:
    """One file for each duty, in the runtime directory, which is 0700 and gone with the boot."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._written: set[Path] = set()

    def put(self, controller: str, bearer: str) -> str:
        """The path of the file that now holds this token; a reader sees the old or the new one."""
        file = self._directory / f"{controller}.token"
        beside = file.with_suffix(".new")
        beside.unlink(missing_ok=True)
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
            opened.write(bearer)
        beside.replace(file)
        self._written.add(file)
        return str(file)

    def remove(self) -> None:
        """Take all of them away."""
        for file in self._written:
            file.unlink(missing_ok=True)
