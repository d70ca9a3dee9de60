"""Flags about processes and their logs."""

import os
from dataclasses import dataclass

from ccm.settings.declaration import (
    AMOUNT,
    BOOLEAN,
    COUNT,
    DIRECTORY,
    FILE,
    GATES,
    LEVELS,
    PAUSE,
    PERIOD,
    SIZE,
    choice,
    ignored,
    ours,
    upstream,
)


def default_runtime_dir() -> str:
    """Where sockets and the lock live: systemd's directory for root, the user's own otherwise."""
    if os.geteuid() == 0:
        return "/run/ccm-supervisor"
    base = os.environ.get("XDG_RUNTIME_DIR") or f"/tmp/ccm-supervisor-{os.geteuid()}"
    return os.path.join(base, "ccm-supervisor")


@dataclass(frozen=True)
class ProcessFlags:
    config: str = ours("", FILE, "YAML file of flags: a mapping of names to values.")
    feature_gates: dict[str, bool] = ignored({}, GATES, "No feature here is behind a gate.")
    node_workers: int = ours(1, COUNT, "Processes that share the nodes.")
    runtime_dir: str = ours(
        "",
        DIRECTORY,
        "Directory for sockets and the lock; if not given, the user's own below /run.",
    )
    state_dir: str = ours(
        "", DIRECTORY, "Directory for what survives a restart; else the runtime one."
    )
    shutdown_timeout: float = ours(20.0, PERIOD, "Longest an orderly stop waits for work in hand.")
    worker_silence_limit: float = ours(
        10.0, PERIOD, "A worker silent for longer is killed and started again."
    )
    worker_steady_time: float = ours(
        10.0, PAUSE, "A worker that ran for longer is started at once when it dies."
    )
    worker_memory_limit: int = ours(
        0, SIZE, "A worker that uses more memory hands over to a new one; 0 = no limit."
    )


WRITTEN_AT_ONCE = "Each record is written at once, to standard error."


@dataclass(frozen=True)
class LogFlags:
    v: int = upstream(0, AMOUNT, "Verbosity; 4 and more logs every decision.")
    logging_format: str = upstream("text", choice("text", "json"), "Form of a log record.")
    vmodule: dict[str, int] = ignored({}, LEVELS, "There are no source files of upstream's.")
    log_flush_frequency: float = ignored(5.0, PERIOD, WRITTEN_AT_ONCE)
    log_text_split_stream: bool = ignored(False, BOOLEAN, WRITTEN_AT_ONCE)
    log_text_info_buffer_size: int = ignored(0, SIZE, WRITTEN_AT_ONCE)
    log_json_split_stream: bool = ignored(False, BOOLEAN, WRITTEN_AT_ONCE)
    log_json_info_buffer_size: int = ignored(0, SIZE, WRITTEN_AT_ONCE)
