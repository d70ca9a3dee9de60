"""Flags as people write them: words, variables and a file."""

from ccm.errors import ConfigurationFaults
from ccm.settings import Reading, Settings, read, read_arguments

CLOUD = "--cloud-provider=simulated"


def reading(*words: str, **variables: str) -> Reading:
    """What is read from these words and variables; a cloud is chosen already."""
    return read(read_arguments([CLOUD, *words]), variables)


def settings(*words: str, **variables: str) -> Settings:
    return reading(*words, **variables).settings


def faults(*words: str, **variables: str) -> dict[str, str]:
    """Flag → what is wrong with it and what to do."""
    try:
        reading(*words, **variables)
    except ConfigurationFaults as found:
        return {fault.field: f"{fault.problem}; {fault.remedy}" for fault in found.faults}
    return {}
