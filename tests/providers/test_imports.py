"""A provider's library is imported when the provider is chosen, and never otherwise."""

import subprocess
import sys

import pytest

from ccm.cloud import registry
from ccm.errors import ConfigurationFault

LIBRARIES = {"aws": "botocore", "vsphere": "pyVmomi"}
WITHOUT = sorted({*registry.known_providers()} - LIBRARIES.keys())
QUIET = f"""
import ccm.cli.main, ccm.supervisor.supervisor, workers.main, ccm.providers.aws.iam
import workers.service.controller, workers.node.controller, ccm.providers.digitalocean.firewall
from ccm.cloud.registry import known_providers, load_provider
from ccm.controllers import load_controller
load_controller("tagging", "aws")
for name in {WITHOUT}:
    load_provider(name)
import sys
print(*{{*{[*LIBRARIES.values()]}}} & sys.modules.keys())
"""


def test_nothing_else_imports_the_libraries() -> None:
    done = subprocess.run([sys.executable, "-c", QUIET], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize(("cloud", "package"), [("aws", "botocore"), ("vsphere", "pyvmomi")])
def test_without_the_library_the_fault_names_what_to_install(
    cloud: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(f"ccm.providers.{cloud}.")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.partition(".")[0] == LIBRARIES[cloud]]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, LIBRARIES[cloud], None)
    with pytest.raises(ConfigurationFault) as fault:
        registry.load_provider(cloud)
    assert f"pip install '{package}>=" in str(fault.value)
