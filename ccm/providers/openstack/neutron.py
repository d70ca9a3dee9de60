"""Neutron's lists, which come whole, and its ports, which belong to more than us."""

from collections.abc import Iterable
from urllib.parse import urlencode

from ccm.cloud.lookup import batches
from ccm.errors import CloudError
from ccm.model.objects import Json, objects
from ccm.providers.openstack.api import OpenStackApi

OPERATIONS = {
    "floatingips": "FloatingIps",
    "networks": "Networks",
    "ports": "Ports",
    "security-groups": "SecurityGroups",
    "subnets": "Subnets",
}
"""The kinds that are listed, and how calls of them are named."""
VALUES_PER_CALL = 100  # in one filter; the request's line is 6 KB then


async def list_all(
    api: OpenStackApi,
    kind: str,
    filters: Iterable[tuple[str, str]] = (),
    fields: Iterable[str] = (),
) -> list[Json]:
    """The objects of a `kind`, such as `floatingips`; raises when the answer lacks the list."""
    query = urlencode([*filters, *(("fields", name) for name in fields)])
    operation = f"List{OPERATIONS[kind]}"
    target = f"/{kind}?{query}" if query else f"/{kind}"
    answer = await api.call(operation, "network", "GET", target)
    key = kind.replace("-", "_")
    if not isinstance(answer.get(key), list):
        raise CloudError(f"{operation}: the answer lacks {key}")
    return objects(answer[key])


async def list_ports(
    api: OpenStackApi, key: str, values: Iterable[str], fields: Iterable[str]
) -> list[Json]:
    """The ports that have any of these values; all of them, or it raises."""
    found: list[Json] = []
    for some in batches(list(dict.fromkeys(values)), VALUES_PER_CALL):
        found += await list_all(api, "ports", [(key, value) for value in some], fields)
    return found


def if_unchanged(port: Json) -> dict[str, str]:
    """The header with which a change is refused when someone else has changed the port since."""
    revision = port.get("revision_number")
    return {"If-Match": f"revision_number={revision}"} if revision else {}
