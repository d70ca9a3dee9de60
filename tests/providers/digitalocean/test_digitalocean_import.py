"""What this provider imports: no SDK, and nothing of another provider."""

import subprocess
import sys

CODE = """
import sys
import ccm.providers.digitalocean.provider, ccm.providers.digitalocean.firewall
print(*sys.modules)
"""


def test_it_imports_no_sdk_and_no_other_provider() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    imported = set(done.stdout.split())
    assert "ccm.providers.digitalocean.lb.load_balancers" in imported
    others = {name for name in imported if name.startswith("ccm.providers.")}
    assert {name.split(".")[2] for name in others} == {"digitalocean"}
    assert not imported & {"botocore", "boto3", "pyVmomi"}
