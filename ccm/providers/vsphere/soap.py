"""SOAP as vCenter speaks it: requests and answers as bytes, by pyVmomi, which sends nothing itself.

Its own connections block, keep no deadline, and do not verify the certificate of a host that is
called localhost.
"""

import re
from typing import Any
from xml.parsers.expat import ExpatError

from pyVmomi import vim, vmodl
from pyVmomi.SoapAdapter import SoapResponseDeserializer, SoapStubAdapterBase

from ccm.cloud.lookup import check_xml
from ccm.errors import CloudError, Denied, Refused, Unauthenticated
from ccm.printable import printable

API_VERSION = "vim.version.version12"  # vSphere 6.7; a newer vCenter answers as that one did
MAX_SAID = 300  # characters of a fault
_UNREADABLE = (ExpatError, AttributeError, LookupError, TypeError, ValueError)


class SessionEnded(CloudError):
    """vCenter does not know the session any more, or what was made in it."""


class NoSuchObject(Refused):
    """vCenter's word that a managed object does not exist."""


class Soap(SoapStubAdapterBase):  # type: ignore[misc]
    """Writes calls and reads what they return. Arguments stand as in vCenter's documentation."""

    requestContext = None  # noqa: N815 - pyVmomi's name

    def __init__(self) -> None:
        super().__init__(version=API_VERSION)
        self.action = str(self.versionId)
        self.service = self.reference(vim.ServiceInstance, "ServiceInstance")

    def reference(self, kind: Any, moid: str) -> Any:
        """The managed object with this ID."""
        return kind(moid, self)

    def write(self, target: Any, method: str, *arguments: Any) -> bytes:
        """The body of a request that calls `method` of `target`."""
        info = type(target)._GetMethodInfo(method)
        rest = [None] * (len(info.params) - len(arguments))
        return bytes(self.SerializeRequest(target, info, [*arguments, *rest]))

    def read(self, target: Any, method: str, body: bytes) -> Any:
        """What it returned; raises what a fault means, and `CloudError` for what is no answer."""
        info = type(target)._GetMethodInfo(method)
        try:
            check_xml(body)
            if not re.search(rb"Envelope>\s*\Z", body[-64:]):
                raise ValueError("it is not complete")  # pyVmomi would read what there is
            answer = SoapResponseDeserializer(self).Deserialize(body, info.result)
        except _UNREADABLE as error:
            raise CloudError(f"the answer is not vCenter's: {error}") from error.__cause__ or error
        if isinstance(answer, Exception):
            raise to_cloud_error(answer)
        if not re.search(rb"<(\w+:)?%sResponse[\s/>]" % info.wsdlName.encode(), body):
            raise CloudError("the answer is not vCenter's: it belongs to another request")
        return answer


def to_cloud_error(fault: Exception) -> CloudError:
    """What a fault of vCenter means for the caller."""
    said = " ".join(str(getattr(fault, "msg", "") or "").split())
    message = printable(f"{type(fault).__name__}: {said}"[:MAX_SAID])
    match fault:
        case vim.fault.InvalidLogin():
            return Unauthenticated(message)
        case vim.fault.NotAuthenticated():
            return SessionEnded(message)
        case vmodl.fault.SecurityError():
            return Denied(message)
        case vmodl.fault.ManagedObjectNotFound():
            # Of no machine, but of a collector or a view: these end with their session.
            is_of_inventory = isinstance(fault.obj, vim.ManagedEntity)
            return NoSuchObject(message) if is_of_inventory else SessionEnded(message)
        case vmodl.fault.NotSupported() | vmodl.fault.MethodNotFound():
            return Refused(message)
    return CloudError(message)
