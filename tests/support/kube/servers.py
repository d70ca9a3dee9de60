"""The files, ports and command lines of etcd and kube-apiserver as tests want them; starts none."""

import csv
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support.kube.audit import POLICY

GROUPS = {"admin": "system:masters", "ccm": "", "nobody": ""}
"""The identities with a static token, and their group. Without a group: no rights."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the parts of one cluster are: binaries, files and ports on 127.0.0.1."""

    binaries: Path
    directory: Path
    etcd_port: int
    etcd_peer_port: int
    apiserver_port: int

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.apiserver_port}"

    @property
    def etcd_url(self) -> str:
        return f"http://127.0.0.1:{self.etcd_port}"

    @property
    def etcd_data(self) -> Path:
        return self.directory / "etcd"

    @property
    def audit_log(self) -> Path:
        return self.directory / "audit.log"

    @property
    def secrets(self) -> Path:
        """For this user only."""
        return self.directory / "secrets"

    @property
    def ca_file(self) -> Path:
        """The API server makes its serving certificate, with the CA behind it, when it starts."""
        return self.secrets / "apiserver.crt"

    def write_files(self, groups: Mapping[str, str]) -> Mapping[str, str]:
        """Write what the API server reads; the token of each identity, which has this group."""
        self.secrets.mkdir(mode=0o700)
        tokens = {identity: secrets.token_urlsafe(24) for identity in groups}
        with (self.secrets / "tokens.csv").open("w", newline="") as file:
            csv.writer(file).writerows((tokens[name], name, name, groups[name]) for name in groups)
        key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
        (self.secrets / "service-account.key").write_bytes(key)
        (self.directory / "audit-policy.json").write_text(json.dumps(POLICY))
        return tokens


def etcd_command(layout: Layout) -> Sequence[str]:
    """Return a single etcd that answers soon and does not wait for the disk."""
    peer_url = f"http://127.0.0.1:{layout.etcd_peer_port}"
    return (
        str(layout.binaries / "etcd"),
        "--name=test",
        f"--data-dir={layout.etcd_data}",
        f"--listen-client-urls={layout.etcd_url}",
        f"--advertise-client-urls={layout.etcd_url}",
        f"--listen-peer-urls={peer_url}",
        f"--initial-advertise-peer-urls={peer_url}",
        f"--initial-cluster=test={peer_url}",
        "--socket-reuse-port",  # ports.ReservedPort holds it
        "--unsafe-no-fsync",
        f"--quota-backend-bytes={8 << 30}",  # 15,000 nodes that report each 10 s fill the usual 2
        "--heartbeat-interval=100",  # idle clusters take processor time for nothing else
        "--election-timeout=500",  # after which a lone member elects itself
        "--log-level=warn",
    )


def apiserver_command(layout: Layout, extra_flags: Sequence[str] = ()) -> Sequence[str]:
    """Return an API server with the admission and fairness of a default cluster.

    It authorizes through RBAC alone, since no node identity is here, and does not register its
    own address as the endpoint of the `kubernetes` Service, since loopback is not valid there.
    """
    return (
        str(layout.binaries / "kube-apiserver"),
        f"--etcd-servers={layout.etcd_url}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",  # otherwise it looks for a default route
        f"--secure-port={layout.apiserver_port}",
        "--permit-port-sharing",  # ports.ReservedPort holds it
        f"--cert-dir={layout.secrets}",
        f"--token-auth-file={layout.secrets}/tokens.csv",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={layout.secrets}/service-account.key",
        f"--service-account-signing-key-file={layout.secrets}/service-account.key",
        "--service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112",
        "--endpoint-reconciler-type=none",
        f"--audit-policy-file={layout.directory}/audit-policy.json",
        f"--audit-log-path={layout.audit_log}",
        "--audit-log-maxsize=10240",  # MiB; never rotated while tests read it
        "--profiling=false",
        "--shutdown-watch-termination-grace-period=1s",  # otherwise an open watch stalls its end
        *extra_flags,
    )
