"""The nodes of the comparison on Azure: a machine, and its Node as upstream's node manager left it.

Upstream's controller initializes none, so all but `new` are initialized.
"""

from dataclasses import KW_ONLY, dataclass

from ccm.model.objects import Json
from tests.labs.azure.lab import GROUP, OTHER_GROUP, REGION, SIZE, Lab, path_of
from tests.peers.kubelets import EXCLUDED, NodeShape, node_of

CONTROL_PLANE = {"node-role.kubernetes.io/control-plane": ""}
UNMANAGED = {"kubernetes.azure.com/managed": "false"}


@dataclass(frozen=True, slots=True)
class Shape(NodeShape):
    """What a machine is like; the words of its Node are `{id}`, and `{ID}` with capitals.

    Without a `group` its Node has a machine that never was. `act` is what is done to it. A machine
    of an availability set has the name of the set.
    """

    group: str = GROUP
    zones: tuple[str, ...] = ("1",)
    act: str = ""
    _: KW_ONLY
    vm_set: str = ""
    provider_id: str = "azure://{id}"
    is_initialized: bool = True


SHAPES: dict[str, Shape] = {
    "plain": Shape(),
    "second-zone": Shape(zones=("2",)),
    "no-zone": Shape(zones=()),
    "capitals": Shape(provider_id="azure://{ID}"),
    "control-plane": Shape(labels=CONTROL_PLANE),
    "excluded": Shape(labels=EXCLUDED),
    "not-ready": Shape(is_ready=False),
    "other-group": Shape(OTHER_GROUP, labels=EXCLUDED),
    "deallocated": Shape(act="deallocate", is_ready=False, labels=EXCLUDED),
    "stopped": Shape(act="poweroff", is_ready=False, labels=EXCLUDED),
    "gone": Shape("", is_ready=False, labels=EXCLUDED, has_pods=False),
    "other-cloud": Shape(
        "", provider_id="aws:///zone/i-0123456789abcdef0", labels=EXCLUDED, has_pods=False
    ),
    "other-cloud-not-ready": Shape(
        "", provider_id="aws:///zone/i-1", labels=EXCLUDED, is_ready=False, has_pods=False
    ),
    "unmanaged": Shape("", labels=EXCLUDED | UNMANAGED, is_ready=False, has_pods=False),
    "new": Shape(provider_id="", is_initialized=False, labels=EXCLUDED, has_pods=False),
    "leaving": Shape(),
}
LATER: dict[str, Shape] = {"late": Shape()}
"""Which join later; `leaving` leaves then."""
ALL = SHAPES | LATER


def launch(lab: Lab, name: str, shape: Shape) -> Json:
    """The machine of a shape with its address; the ID of one that never was."""
    if not shape.group:
        return {"id": path_of("virtualMachines", name), "address": ""}
    more = {"zones": [*shape.zones]} if shape.zones else {"zones": None}
    made = lab.add_machine(name, shape.group, **more)
    if shape.vm_set:
        own = made["id"].replace("/virtualMachines/", "/availabilitySets/")
        set_id = f"{own.rpartition('/')[0]}/{shape.vm_set}"
        lab.merge(made["id"], properties={"availabilitySet": {"id": set_id}})
    if shape.act:
        lab.act(made["id"], shape.act)
    return {"id": made["id"], "address": address_of(lab, name, shape.group)}


def address_of(lab: Lab, name: str, group: str = GROUP) -> str:
    """That of a machine's one interface."""
    interface = lab.get("networkInterfaces", f"{name}-nic", group)
    (ip,) = interface["properties"]["ipConfigurations"]
    return str(ip["properties"]["privateIPAddress"])


def manifest(name: str, shape: Shape, machine: Json, pod_cidr: str) -> Json:
    """The Node, with the labels that the node manager gives it."""
    identifier = machine["id"]
    upper = identifier.replace(f"/resourceGroups/{GROUP}/", f"/resourceGroups/{GROUP.upper()}/")
    body = node_of(shape, {"name": name, "id": identifier, "ID": upper}, pod_cidr)
    if shape.is_initialized and shape.group:
        zone = f"{REGION}-{shape.zones[0]}" if shape.zones else "0"
        known = {"region": REGION, "zone": zone}
        body["metadata"]["labels"] |= {f"topology.kubernetes.io/{k}": v for k, v in known.items()}
        old = {f"failure-domain.beta.kubernetes.io/{k}": v for k, v in known.items()}
        prefixes = ("node.kubernetes.io", "beta.kubernetes.io")
        types = {f"{prefix}/instance-type": SIZE for prefix in prefixes}
        body["metadata"]["labels"] |= old | types
    if shape.is_initialized and machine["address"]:
        address = {"type": "InternalIP", "address": machine["address"]}
        body["status"]["addresses"] = [address, {"type": "Hostname", "address": name}]
    return body
