"""The way to one vCenter: SOAP and REST over one port, one request at a time through the gate.

Each of the two has a session of its own. One that ended is opened again and the whole read is
repeated, so that no read is made of two halves.
"""

import asyncio
import base64
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from pyVmomi import vim

from ccm.cloud.credentials import PASSWORD_PAUSE, Credentials, is_shown
from ccm.cloud.failures import by_status
from ccm.cloud.interface import Gate, Quota
from ccm.cloud.json_api import JsonApi, Request
from ccm.errors import CloudError, NotLeading, Unauthenticated
from ccm.http import HttpResponse
from ccm.http_client import HttpClient
from ccm.model.objects import mapping
from ccm.providers.vsphere.config import VCenter
from ccm.providers.vsphere.connections import Connections
from ccm.providers.vsphere.credentials import CredentialSource, Login
from ccm.providers.vsphere.soap import SessionEnded, Soap

T = TypeVar("T")

SESSION, INVENTORY, TAGS = "session", "inventory", "tags"
QUOTAS = {
    SESSION: Quota(per_second=1.0, burst=10),
    INVENTORY: Quota(per_second=10.0, burst=30),
    TAGS: Quota(per_second=20.0, burst=100),
}
"""vCenter promises no rates. Its sessions are few, its tags an index of their own."""
LOGOUT_TIMEOUT = 1.0  # seconds; a session that is not closed ends by itself after 30 minutes
LARGE_BODY = 1 << 16  # bytes; what is larger is read in a thread
SOAP_HEADERS = {"Content-Type": "text/xml; charset=utf-8", "Accept": "*/*"}
REST, REST_SESSION = "/rest/com/vmware/cis", "vmware-api-session-id"
METHODS = {
    "RetrieveContent": ("RetrieveServiceContent", SESSION),
    "Login": ("Login", SESSION),
    "CreateContainerView": ("CreateContainerView", SESSION),
    "Logout": ("Logout", SESSION),
    "RetrievePropertiesEx": ("ListInventory", INVENTORY),
    "ContinueRetrievePropertiesEx": ("ListInventory", INVENTORY),
    "FindAllByUuid": ("ListMachines", INVENTORY),
    "HasPrivilegeOnEntities": ("GetPrivileges", INVENTORY),
}
"""vCenter's names of the calls that are made, with ours for the gate and their classes.

All are reads: a session and a view are of this process alone.
"""
MANAGERS = (
    "propertyCollector",
    "rootFolder",
    "searchIndex",
    "sessionManager",
    "viewManager",
    "authorizationManager",
)
"""What every vCenter has, and is read from its content."""
VIEWED = (
    vim.VirtualMachine,
    vim.HostSystem,
    vim.ComputeResource,
    vim.ResourcePool,
    vim.Datacenter,
    vim.Folder,
)


@dataclass(frozen=True, slots=True)
class Session:
    """A SOAP session, and the view of all that there is, which vCenter keeps for it."""

    cookie: str
    key: str
    view: Any


class VCenterApi(JsonApi):
    """Requests to one vCenter; REST is JSON, SOAP goes the same way and is read by `Soap`.

    Raises as any `JsonApi`, and `NoSuchObject`.
    """

    cloud, ca_keys = "vCenter", "caFile, or its thumbprint"

    def __init__(self, vcenter: VCenter, source: CredentialSource, gate: Gate, caller: str) -> None:
        super().__init__(gate, caller, name=vcenter.name)
        self.vcenter = vcenter
        self._login = Credentials(
            source.read, f"the login in {source.place}", backoff=PASSWORD_PAUSE
        )
        self._connections = Connections(vcenter)
        self._soap = Soap()
        self._content: Any = None
        self._session: Session | None = None
        self._rest_session = ""
        self._opening = asyncio.Lock()

    async def close(self) -> None:
        """End the sessions, if that can be done at once, and close all connections."""
        session, self._session = self._session, None
        rest, self._rest_session = self._rest_session, ""
        if rest:
            await self._log_out_of_tags(rest)
        if session:
            await self._log_out(session.cookie)
        await self._connections.close()

    async def in_session(self, read: Callable[[Session], Awaitable[T]]) -> T:
        """What `read` gives; all of it is read again where the session ended meanwhile."""
        session = await self.open_session()
        try:
            return await read(session)
        except SessionEnded:
            if self._session is session:
                self._session = None
                await self._log_out(session.cookie)
            return await read(await self.open_session())

    @property
    def content(self) -> Any:
        """The managers that this vCenter has; there once a session was opened."""
        return self._content

    def reference(self, kind: Any, moid: str) -> Any:
        """The managed object with this ID."""
        return self._soap.reference(kind, moid)

    async def call(self, session: Session, target: Any, method: str, *arguments: Any) -> Any:
        """What a method of a managed object returns."""
        answer, _ = await self._call(session.cookie, target, method, *arguments)
        return answer

    async def rest(self, operation: str, method: str, path: str, body: Any = None) -> Any:
        """The `value` of an answer about tags."""
        session = await self._open_rest_session()
        try:
            return await self._rest(operation, method, path, {REST_SESSION: session}, body)
        except SessionEnded:
            if self._rest_session == session:
                self._rest_session = ""
                await self._log_out_of_tags(session)
            session = await self._open_rest_session()
            return await self._rest(operation, method, path, {REST_SESSION: session}, body)

    # Sessions

    async def open_session(self) -> Session:
        """The session that is there, or a new one."""
        async with self._opening:
            if self._session is None:
                self._session = await self._login.use(self._log_in)
            return self._session

    async def _log_in(self, login: Login) -> Session:
        content, known = await self._read_content(), (login.user, login.password)
        user, cookie = await self._call("", content.sessionManager, "Login", *known)
        if cookie and not is_shown(cookie):
            raise CloudError(f"{self.name}: Login: the answer has no session that can be used")
        everything = (content.rootFolder, list(VIEWED), True)
        try:
            made = await self._call(cookie, content.viewManager, "CreateContainerView", *everything)
        except CloudError:
            await self._log_out(cookie)
            raise
        return Session(cookie, user.key, made[0])

    async def _read_content(self) -> Any:
        """The managers that there are, read with each login: an answer may name others."""
        found, _ = await self._call("", self._soap.service, "RetrieveContent")
        if not all(getattr(found, name, None) for name in MANAGERS):
            raise CloudError(f"{self.name}: RetrieveContent: the answer lacks a manager")
        self._content = found
        return found

    async def _log_out(self, cookie: str) -> None:
        """End a session, which may have ended, if that can be done at once."""
        with suppress(CloudError, NotLeading, TimeoutError):
            async with asyncio.timeout(LOGOUT_TIMEOUT):
                await self._call(cookie, self._content.sessionManager, "Logout")

    async def _log_out_of_tags(self, session: str) -> None:
        with suppress(CloudError, NotLeading, TimeoutError):
            async with asyncio.timeout(LOGOUT_TIMEOUT):
                await self._rest("Logout", "DELETE", "/session", {REST_SESSION: session})

    async def _open_rest_session(self) -> str:
        async with self._opening:
            if not self._rest_session:
                self._rest_session = await self._login.use(self._log_in_for_tags)
            return self._rest_session

    async def _log_in_for_tags(self, login: Login) -> str:
        known = f"{login.user}:{login.password}".encode()
        headers = {"Authorization": f"Basic {base64.b64encode(known).decode()}"}
        try:
            session = await self._rest("CreateTagSession", "POST", "/session", headers)
        except SessionEnded as refused:
            raise Unauthenticated(str(refused)) from refused
        if not isinstance(session, str) or not is_shown(session):
            raise CloudError(f"{self.name}: CreateTagSession: the answer has no session")
        return session

    # Requests

    async def _call(
        self, cookie: str, target: Any, method: str, *arguments: Any
    ) -> tuple[Any, str]:
        """What a method of a managed object returns, and the cookie that came along."""
        operation, budget = METHODS[method]
        body = self._soap.write(target, method, *arguments)
        headers = {**SOAP_HEADERS, "SOAPAction": self._soap.action}
        if cookie:
            headers["Cookie"] = cookie
        request = Request(operation, budget, "POST", "/sdk", body, headers, changes_nothing=True)

        async def send() -> tuple[Any, str]:
            answer = await self.send(request)
            if answer.status not in (200, 500):  # 500 has the fault
                message = f"{self.named(operation)}: {answer.status} {answer.reason}"
                raise by_status(message, answer)
            try:
                if len(answer.body) < LARGE_BODY:
                    result = self._soap.read(target, method, answer.body)
                else:
                    result = await asyncio.to_thread(self._soap.read, target, method, answer.body)
            except CloudError as error:
                raise type(error)(f"{self.named(operation)}: {error}") from error.__cause__
            return result, answer.header("Set-Cookie").partition(";")[0]

        return await self.gate.call(operation, budget, send, is_write=False)

    async def _rest(
        self, operation: str, method: str, path: str, headers: Mapping[str, str], body: Any = None
    ) -> Any:
        budget = TAGS if path[:8] != "/session" else SESSION
        return await self.request(
            Request(operation, budget, method, REST + path, body, headers, changes_nothing=True)
        )

    async def client(self, url: str) -> HttpClient:
        return await self._connections.current()

    async def send(self, request: Request) -> HttpResponse:
        try:
            return await super().send(request)
        except CloudError as error:
            if isinstance(error.__cause__, ssl.SSLCertVerificationError):
                self._connections.forget_pin()
            raise

    def error_text(self, content: Any, response: HttpResponse) -> str:
        return response.reason

    def error(self, message: str, content: Any, response: HttpResponse) -> CloudError:
        if response.status == 401:
            return SessionEnded(message)
        return super().error(message, content, response)

    def result(self, operation: str, content: Any) -> Any:
        """The value in an answer of REST."""
        return mapping(content).get("value")
