"""The --cloud-config file of the simulated cloud; all its faults are reported at once."""

import math
from dataclasses import dataclass

from ccm.cloud.config_file import of_form, positive_duration, url, whole_number
from ccm.cloud.credentials import TOKEN, SecretText
from ccm.cloud.interface import Quota
from ccm.cloud.sections import Sections, setting

DEFAULT_READ_QUOTA = Quota(per_second=20.0, burst=40)
DEFAULT_WRITE_QUOTA = Quota(per_second=5.0, burst=10)


def _quota(text: str) -> Quota:
    """A rate; twice as many calls may come at once, and at least one."""
    rate = float(text)
    if not 0 < rate < math.inf:
        raise ValueError(text)
    return Quota(rate, max(1, int(2 * rate)))


def _timeout(text: str) -> float:
    """A duration, or a bare number of seconds."""
    return positive_duration(f"{text}s" if text.replace(".", "", 1).isdecimal() else text)


def _url(value: str) -> str:
    return url(value, ("http", "https"), None)


_URL = _url, "give the URL of the simulated cloud"
_TOKEN = of_form(TOKEN, "copy it again: it has no spaces and is ASCII")
_PAGE = whole_number(1, 1000)
_RATE = _quota, "give calls a second, above 0"
_TIMEOUT = _timeout, "give a duration as 10s or 500ms"


@dataclass(frozen=True, slots=True)
class SimulatedConfig:
    """How to reach the simulated cloud and how much of it to use; `timeout` is of one call."""

    url: str = setting("", _URL)
    token: str = setting("", _TOKEN, is_secret=True)
    token_file: str = ""
    page_size: int = setting(100, _PAGE)
    read_quota: Quota = setting(DEFAULT_READ_QUOTA, _RATE, name="read-rate")
    write_quota: Quota = setting(DEFAULT_WRITE_QUOTA, _RATE, name="write-rate")
    timeout: float = setting(10.0, _TIMEOUT)

    @property
    def secret(self) -> SecretText:
        """The token."""
        return SecretText("[Global] token", self.token, self.token_file)


def read_config(content: bytes, path: str) -> SimulatedConfig:
    """The configuration in `content`; raises `ConfigurationFaults` with everything wrong in it."""
    sections = Sections(content, path, {"Global": SimulatedConfig})
    config, faults = sections.read(SimulatedConfig), sections.faults
    if not sections.has("Global", "url"):
        faults.add("[Global] url", "is missing", "give the URL of the simulated cloud")
    config.secret.check(faults, "set token or token-file")
    faults.check()
    return config
