"""Provider IDs of Nodes, and what they say of an instance."""

import re

SCHEME = "incus"
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
PROVIDER_IDS = re.compile(rf"({SCHEME}|lxc)://.*")
"""`lxc:///NAME` is what Cluster API's provider writes: it is read, and never written."""

_FORM = re.compile(rf"{SCHEME}://[^/]+/({UUID.pattern})", re.IGNORECASE)
_NAME_FORM = re.compile(r"lxc:///([A-Za-z0-9-]{1,63})")


def uuid_of(provider_id: str) -> str:
    """The UUID of the instance that a provider ID names; empty when it names none by it."""
    match = _FORM.fullmatch(provider_id)
    return match[1].lower() if match else ""


def name_of(provider_id: str) -> str:
    """The name of the instance that a provider ID of Cluster API's names; empty otherwise."""
    match = _NAME_FORM.fullmatch(provider_id)
    return match[1] if match else ""


def provider_id(project: str, uuid: str) -> str:
    """`incus://PROJECT/UUID`: a name may be another machine's tomorrow."""
    return f"{SCHEME}://{project}/{uuid}"
