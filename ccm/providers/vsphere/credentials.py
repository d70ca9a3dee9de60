"""Who we are to a vCenter: as the file says, or as a Secret says at each login."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ccm.cloud.interface import SecretReader
from ccm.errors import Denied
from ccm.providers.vsphere.config import VCenter
from ccm.redaction import register_hidden

SESSION_MANAGER = "vc-session-manager-url"


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user and the password."""

    user: str
    password: str = field(repr=False)

    def __post_init__(self) -> None:
        register_hidden(self)


class CredentialSource:
    """Reads the credentials of one vCenter anew each time: they may be changed at any time.

    In a Secret, and in a directory of files, they are `SERVER.username` and `SERVER.password`.
    """

    def __init__(self, vcenter: VCenter, read_secret: SecretReader | None) -> None:
        self._vcenter, self._read_secret = vcenter, read_secret

    async def read(self) -> Credentials:
        """Those of now; raises `Denied` when there are none."""
        vcenter = self._vcenter
        stored = await self._stored()
        user = stored.get(f"{vcenter.server}.username", "") or vcenter.user
        password = stored.get(f"{vcenter.server}.password", "") or vcenter.password
        if stored.get(f"{vcenter.server}.{SESSION_MANAGER}"):
            raise Denied(f"{vcenter.name}: shared sessions ({SESSION_MANAGER}) are not supported")
        if user.startswith("-----BEGIN"):
            raise Denied(f"{vcenter.name}: a login by certificate is not supported")
        if not user or not password:
            keys = f"{vcenter.server}.username and {vcenter.server}.password"
            raise Denied(f"{vcenter.name}: {self.place} has no {keys}")
        return Credentials(user, password)

    @property
    def place(self) -> str:
        """Where they are."""
        vcenter = self._vcenter
        if vcenter.secret_name:
            return f"Secret {vcenter.secret_namespace}/{vcenter.secret_name}"
        return vcenter.secrets_directory or "the configuration"

    async def _stored(self) -> Mapping[str, str]:
        vcenter = self._vcenter
        try:
            if vcenter.secret_name:
                if self._read_secret is None:
                    raise Denied(f"{vcenter.name}: {self.place} cannot be read from here")
                return await self._read_secret(vcenter.secret_namespace, vcenter.secret_name)
            if vcenter.secrets_directory:
                return await asyncio.to_thread(self._files, Path(vcenter.secrets_directory))
        except (OSError, ValueError) as wrong:
            raise Denied(f"{vcenter.name}: {self.place} cannot be read: {wrong}") from wrong
        return {}

    def _files(self, directory: Path) -> dict[str, str]:
        """Its entries for this server; editors leave a line break at the end of a file."""
        names = [
            f"{self._vcenter.server}.{key}" for key in ("username", "password", SESSION_MANAGER)
        ]
        found = [directory / name for name in names if (directory / name).is_file()]
        return {file.name: file.read_text().rstrip("\r\n") for file in found}
