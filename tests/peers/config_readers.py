"""Readers of configuration files that upstream's controllers use, in a program of their own."""

import base64
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ccm.model.objects import Json


@dataclass(frozen=True, slots=True)
class GoReaders:
    """Asks the program; it answers each question at once."""

    questions: IO[str]
    answers: IO[str]

    def read(self, reader: str, text: bytes) -> tuple[str, Json]:
        """The error, or what was found."""
        question = {"reader": reader, "text": base64.b64encode(text).decode()}
        self.questions.write(f"{json.dumps(question)}\n")
        self.questions.flush()
        answer: dict[str, Any] = json.loads(self.answers.readline())
        return answer["error"], answer["found"]


@contextmanager
def go_readers(directory: Path) -> Iterator[GoReaders]:
    """The program, which ends with the block."""
    program = str(directory / "config-readers")
    pipe = subprocess.PIPE
    with subprocess.Popen([program], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin
        assert process.stdout
        yield GoReaders(process.stdin, process.stdout)
        process.stdin.close()
