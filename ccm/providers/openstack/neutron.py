"""Neutron's lists, and its ports, which belong to more than us."""

from collections.abc import Collection, Iterable
from urllib.parse import urlencode

from ccm.cloud.json_api import verify_about
from ccm.cloud.lookup import batches
from ccm.model.objects import Json, mapping, text
from ccm.providers.openstack.api import OpenStackApi

OPERATIONS = {
    "floatingips": "FloatingIps",
    "networks": "Networks",
    "ports": "Ports",
    "security-groups": "SecurityGroups",
    "subnets": "Subnets",
}
"""The kinds that are listed, and how calls of them are named."""
MOST_ADDRESSES = 100  # of a Node that are looked at: its kubelet may write thousands
VALUES_PER_CALL = 100  # in one filter; the request's line is 6 KB then


async def list_all(
    api: OpenStackApi,
    kind: str,
    filters: Iterable[tuple[str, str]] = (),
    fields: Collection[str] = (),
) -> list[Json]:
    """The objects of a `kind`, such as `floatingips`; raises when the answer lacks the list.

    They come whole unless Neutron is configured to give so many at the most
    (`pagination_max_limit`), which it says by a link to the rest. That begins behind an `id`.
    """
    asked = ("id", *fields) if fields and "id" not in fields else fields
    query = urlencode([*filters, *(("fields", name) for name in asked)])
    target = f"/{kind}?{query}" if query else f"/{kind}"
    return await api.pages_at(f"List{OPERATIONS[kind]}", "network", target, kind.replace("-", "_"))


async def list_own(
    api: OpenStackApi,
    kind: str,
    filters: Iterable[tuple[str, str]] = (),
    fields: Collection[str] = (),
) -> list[Json]:
    """The same of our project alone: others may share theirs with it, under any name."""
    project = await api.project_id()
    asked = (*fields, "project_id") if fields else fields
    found = await list_all(api, kind, [*filters, ("project_id", project)], asked)
    return [item for item in found if is_of(project, item)]


def is_of(project: str, item: Json) -> bool:
    """Whether it is the project's; so is what names none, as the list was asked for by project."""
    return text(item.get("project_id", project)) == project


async def list_ports(
    api: OpenStackApi, key: str, values: Iterable[str], fields: Collection[str]
) -> list[Json]:
    """The ports that have any of these values; all of them, or it raises."""
    found: list[Json] = []
    for some in batches(list(dict.fromkeys(values)), VALUES_PER_CALL):
        found += await list_all(api, "ports", [(key, value) for value in some], fields)
    return found


async def read_port(api: OpenStackApi, port_id: str) -> Json:
    """A port by itself: a list may lack what others have there, which a write would take away."""
    answer = await api.get("GetPort", "network", f"/ports/{port_id}")
    port = dict(mapping(answer.get("port")))
    verify_about("GetPort", port, "id", port_id)
    return port


def if_unchanged(port: Json) -> dict[str, str]:
    """The header with which a change is refused when someone else has changed the port since."""
    revision = port.get("revision_number")
    return {"If-Match": f"revision_number={revision}"} if revision else {}
