"""Who we are to a vCenter: as the file says, or as a Secret says at each login."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ccm.cloud.credentials import PASSWORD, SecretText
from ccm.cloud.interface import SecretReader
from ccm.errors import Denied, Unauthenticated
from ccm.providers.vsphere.config import VCenter
from ccm.redaction import register_hidden

SESSION_MANAGER = "vc-session-manager-url"


@dataclass(frozen=True, slots=True)
class Login:
    """A user and the password."""

    user: str
    password: str = field(repr=False)

    def __post_init__(self) -> None:
        register_hidden(self)


class CredentialSource:
    """Reads the login to one vCenter again each time: it may be changed at any time.

    In a Secret, and in a directory of files, they are `SERVER.username` and `SERVER.password`.
    """

    def __init__(self, vcenter: VCenter, read_secret: SecretReader | None) -> None:
        self._vcenter, self._read_secret = vcenter, read_secret

    async def read(self) -> Login:
        """That of now; raises `Unauthenticated` when there is none."""
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
            raise Unauthenticated(f"{vcenter.name}: {self.place} has no {keys}")
        return Login(user, password)

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
        except (OSError, ValueError) as error:
            why = f"{vcenter.name}: {self.place} cannot be read: {error}"
            raise Unauthenticated(why) from error
        return {}

    def _files(self, directory: Path) -> dict[str, str]:
        """Its entries for this server."""
        names = [
            f"{self._vcenter.server}.{key}" for key in ("username", "password", SESSION_MANAGER)
        ]
        texts = [
            SecretText(name, "", str(directory / name), PASSWORD, "")
            for name in names
            if (directory / name).is_file()
        ]
        return {text.key: text.read() for text in texts}
