"""Names of AWS's objects as Kubernetes writes them: provider IDs of Nodes, IDs of volumes."""

import re

SCHEME = "aws"
INSTANCE_ID = re.compile(r"i-(?:[0-9a-f]{17}|[0-9a-f]{8})")
"""What EC2 takes: of all others it refuses one with each call."""
VOLUME_ID = re.compile(r"vol-[0-9a-f]{8,32}")
PROVIDER_IDS = re.compile(rf"{SCHEME}://.*|{INSTANCE_ID.pattern}")
"""A kubelet may register with the bare instance ID, too: upstream takes it."""

_DNS_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,252})")


def instance_id_of(provider_id: str) -> str:
    """The instance that a provider ID names; empty when it names none.

    `aws:///<zone>/<id>` is the usual form. `aws:///<id>`, `aws:////<id>`, a host for the zone and
    the bare ID are accepted, as upstream does.
    """
    return _last_part(provider_id, INSTANCE_ID)


def volume_id_of(handle: str) -> str:
    """The volume in a CSI handle or in `awsElasticBlockStore.volumeID`; empty when none is."""
    return _last_part(handle, VOLUME_ID)


def instance_id_in_name(node_name: str) -> str:
    """The instance ID that a resource-based host name begins with; empty for all other names."""
    label = node_name.partition(".")[0]
    return label if INSTANCE_ID.fullmatch(label) else ""


def can_be_dns_name(node_name: str) -> bool:
    """Whether an instance can have this private DNS name; filters give `*` and `?` a meaning."""
    return bool(_DNS_NAME.fullmatch(node_name))


def provider_id(zone: str, instance_id: str) -> str:
    """`aws:///<zone>/<instance ID>`."""
    return f"{SCHEME}:///{zone}/{instance_id}"


def _last_part(text: str, form: re.Pattern[str]) -> str:
    if "://" in text:
        scheme, _, rest = text.partition("://")
        if scheme != SCHEME or "?" in rest or "#" in rest:
            return ""
        text = rest.partition("/")[2].strip("/").rpartition("/")[2]
    return text if form.fullmatch(text) else ""
