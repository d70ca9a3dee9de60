"""The SDK is imported when the provider is chosen, and never otherwise."""

import subprocess
import sys

import pytest

from ccm.cloud import registry
from ccm.errors import ConfigurationFault

SDK = {"botocore"}
QUIET = (
    "import ccm.cli.main, ccm.supervisor.supervisor, workers.main",
    "import workers.service.controller, workers.node.controller",
    "from ccm.cloud.registry import load_provider; load_provider('simulated')",
    "from ccm.cloud.registry import known_providers; assert 'aws' in known_providers()",
    "import ccm.providers.aws.iam",
    "from ccm.controllers import load_controller; load_controller('tagging', 'aws')",
)


@pytest.mark.parametrize("code", QUIET)
def test_nothing_else_imports_the_sdk(code: str) -> None:
    check = f"{code}; import sys; print(*{SDK!r} & sys.modules.keys())"
    done = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == []


def test_without_the_extra_it_is_told_which_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("ccm.providers.aws.")]:
        monkeypatch.delitem(sys.modules, name)
    for name in SDK:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigurationFault) as fault:
        registry.load_provider("aws")
    assert "pip install 'botocore>=" in str(fault.value)
