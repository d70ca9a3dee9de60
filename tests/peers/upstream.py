"""An upstream controller, as released, as a process; no pytest in here."""

from pathlib import Path

from tests.support.kube.build import AWS_PEER, AZURE_PEER, OPENSTACK_PEER, PEER, VSPHERE_PEER
from tests.support.running import Running

(LIBRARY,) = PEER.programs
(AWS,) = AWS_PEER.programs
(AZURE,) = AZURE_PEER.programs
(OPENSTACK,) = OPENSTACK_PEER.programs
(VSPHERE,) = VSPHERE_PEER.programs


class Upstream(Running):
    """It works for the cluster of a kubeconfig in a cloud; ended with the block.

    Of its defaults those are changed that would make it slower: it does ten Services and Nodes at
    once, asks the API server as often as it likes, and looks at its routes each second.
    """

    lacks: tuple[str, ...] = ()
    """What begins the flags that it does not have."""

    def __init__(
        self,
        directory: Path,
        program: Path,
        kubeconfig: Path,
        config: Path | None,
        *flags: str,
        **environment: str,
    ) -> None:
        super().__init__(
            "upstream",
            directory,
            [
                "/usr/bin/env",
                *(f"{name}={value}" for name, value in environment.items()),
                str(program),
                *([f"--cloud-config={config}"] if config else []),
                f"--kubeconfig={kubeconfig}",
                "--secure-port=0",
                *(one for one in (*QUICK, *flags) if not one.startswith(self.lacks)),
            ],
        )

    def command(self, arguments: list[str]) -> list[str]:
        return arguments


QUICK = (
    "--concurrent-service-syncs=10",
    "--concurrent-node-syncs=10",
    "--kube-api-qps=500",
    "--kube-api-burst=500",
    "--route-reconciliation-period=1s",
    "--node-monitor-period=1s",
)
DEFAULTS = (
    "--concurrent-service-syncs=1",
    "--concurrent-node-syncs=1",
    "--kube-api-qps=20",
    "--kube-api-burst=30",
    "--route-reconciliation-period=10s",
    "--node-monitor-period=5s",
)
"""What these are without being asked for."""


def memory(directory: Path, binaries: Path, kubeconfig: Path, *flags: str) -> Upstream:
    """That of upstream's library, with a cloud that answers from memory; `binaries` as for AWS."""
    more = ("--cloud-provider=memory", *flags)
    return Upstream(directory, binaries / LIBRARY, kubeconfig, None, *more)


def aws(
    directory: Path, binaries: Path, kubeconfig: Path, config: Path, url: str, *flags: str
) -> Upstream:
    """That of AWS, for the account at `url`; `binaries` is the folder that was built for PEERS."""
    program = binaries / AWS
    more = ("--cloud-provider=aws", *flags)
    return Upstream(directory, program, kubeconfig, config, *more, AWS_ENDPOINT_URL=url)


class AzureUpstream(Upstream):
    """That of Azure: no worker for Nodes, one for Services, and no flags for their numbers."""

    lacks = ("--concurrent-node-syncs", "--concurrent-service-syncs")


def azure(
    directory: Path, binaries: Path, kubeconfig: Path, config: Path, ca_file: str, *flags: str
) -> Upstream:
    """That of Azure; `binaries` is the folder that was built for AZURE_PEERS."""
    more = ("--cloud-provider=azure", *flags)
    return AzureUpstream(
        directory, binaries / AZURE, kubeconfig, config, *more, SSL_CERT_FILE=ca_file
    )


def openstack(
    directory: Path, binaries: Path, kubeconfig: Path, config: Path, *flags: str
) -> Upstream:
    """That of OpenStack; `binaries` is the folder that was built for LAB_PEERS."""
    more = ("--cloud-provider=openstack", *flags)
    return Upstream(directory, binaries / OPENSTACK, kubeconfig, config, *more)


def vsphere(
    directory: Path, binaries: Path, kubeconfig: Path, config: Path, *flags: str
) -> Upstream:
    """That of vSphere; `binaries` is the folder that was built for VSPHERE_PEERS."""
    more = ("--cloud-provider=vsphere", *flags)
    return Upstream(directory, binaries / VSPHERE, kubeconfig, config, *more)
