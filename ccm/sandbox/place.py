"""The directory of one sandbox: where its parts leave their addresses, logs and configuration."""

import os
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from ccm.errors import ConfigurationFault


def default_directory() -> str:
    """One sandbox per user, so that a second terminal finds it without being told."""
    base = os.environ.get("XDG_RUNTIME_DIR") or "/tmp"
    return os.path.join(base, f"ccm-sandbox-{os.geteuid()}")


@dataclass(frozen=True, slots=True)
class Place:
    """Paths inside the directory."""

    directory: Path

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "kubeconfig"

    @property
    def cloud_config(self) -> Path:
        return self.directory / "cloud.conf"

    @property
    def runtime(self) -> Path:
        return self.directory / "run"

    @property
    def facts(self) -> Path:
        return self.directory / "sandbox.json"

    def log(self, part: str) -> Path:
        return self.directory / f"{part}.log"

    def url_file(self, part: str) -> Path:
        return self.directory / f"{part}.url"


@dataclass(frozen=True, slots=True)
class SandboxFacts:
    """What other commands need to know of a running sandbox."""

    pid: int
    kubernetes_url: str
    cloud_url: str

    def save(self, place: Place) -> None:
        place.facts.write_bytes(orjson.dumps(asdict(self)))


def find(directory: str) -> tuple[Place, SandboxFacts]:
    """The sandbox that runs in `directory`; raises `ConfigurationFault` when none does."""
    place = Place(Path(directory).absolute())
    try:
        facts = SandboxFacts(**orjson.loads(place.facts.read_bytes()))
        os.kill(facts.pid, 0)
    except (OSError, TypeError, orjson.JSONDecodeError) as error:
        raise ConfigurationFault(
            "--directory",
            f"no sandbox runs in {directory}",
            "start one with 'ccm-supervisor sandbox', or name the directory of the one that runs",
        ) from error
    return place, facts
