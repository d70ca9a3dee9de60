"""In each process that is measured: writes down which functions of the product run, and when."""

import json
import os
import sys
import threading
import time
from inspect import CO_OPTIMIZED
from opcode import opname
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from multiprocess import current_process

from tests.routes.tables import BACKGROUND, WALKS

VARIABLE = "RECORD_CALLS_INTO"
ROOT = Path(__file__).parents[2]
POINTS = {(point.file, point.function) for walk in WALKS for point in (walk.start, walk.end)}
AWAITS = 2  # the argument of RESUME, or more, where a coroutine goes on that had to wait


def record() -> None:
    """Begin, in all threads, unless this is one of the sandbox's servers."""
    if not any(argument.startswith("ccm.sandbox") for argument in sys.orig_argv):
        recorder = Recorder(Path(os.environ[VARIABLE]))
        threading.setprofile(recorder.take)
        sys.setprofile(recorder.take)


class Recorder:
    """Writes JSON lines: time, process, event, file, function, and the words of a point."""

    def __init__(self, directory: Path) -> None:
        path = directory / f"{os.getpid()}.jsonl"
        self._file = open(path, "w", buffering=1, encoding="utf-8")  # noqa: SIM115 - to the end
        self._places: dict[CodeType, tuple[str, str] | None] = {}

    def take(self, frame: FrameType, event: str, _: Any) -> None:
        """What the interpreter calls: note who is called, and who calls.

        When a coroutine goes on, those that await it are entered, too, but run no code.
        """
        if event == "call" and _operation(frame)[1] < AWAITS:
            self._write(event, frame)
            self._write("runs", frame.f_back)
        elif event == "c_call":
            self._write("runs", frame)
        elif event == "return" and self._is_point_left(frame):
            self._write(event, frame)

    def _write(self, event: str, frame: FrameType | None) -> None:
        place = frame and self._place(frame.f_code)
        if frame and place and not self._is_background(frame):
            words = _words(frame) if place in POINTS else ""
            line = [time.monotonic(), current_process().name, event, *place, words]
            self._file.write(json.dumps(line) + "\n")

    def _place(self, code: CodeType) -> tuple[str, str] | None:
        """File and function; None when it is not the product's, or runs while one is imported."""
        if code not in self._places:
            path = Path(code.co_filename)
            file = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else ""
            is_function = file.startswith(("ccm/", "workers/")) and code.co_flags & CO_OPTIMIZED
            self._places[code] = (file, code.co_qualname) if is_function else None
        return self._places[code]

    def _is_point_left(self, frame: FrameType) -> bool:
        """Whether a point's function returns, and does not just wait."""
        is_point = self._place(frame.f_code) in POINTS
        return is_point and _operation(frame)[0].startswith("RETURN")

    def _is_background(self, frame: FrameType | None) -> bool:
        while frame and self._place(frame.f_code) not in BACKGROUND:
            frame = frame.f_back
        return frame is not None


def _operation(frame: FrameType) -> tuple[str, int]:
    """The instruction that a frame is at, and its argument."""
    code, at = frame.f_code.co_code, frame.f_lasti
    return opname[code[at]], code[at + 1]


def _words(frame: FrameType) -> str:
    """The texts among its arguments and variables."""
    values = frame.f_locals.values()
    texts = (v.decode(errors="replace") if isinstance(v, bytes) else v for v in values)
    return " ".join(text for text in texts if isinstance(text, str))
