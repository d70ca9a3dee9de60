"""Fills the lab with what a project with a cluster has: identity, cloud, tenant, octavia."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any
from uuid import uuid4

import openstack

E = os.environ
HOST, SERVICES = "127.0.0.1", ("nova", "placement", "glance", "neutron", "octavia", "cinder")
RUN = Path(E["RUN"])
HOSTS = dict(item.split(":") for item in E["OSLAB_COMPUTES"].split())  # to their zones
ZONES = sorted(set(HOSTS.values()))
URLS = {n: f"http://{HOST}:{E['P_' + n.upper()]}" for n in ("keystone", *SERVICES)}
USUAL = ("member", "reader", "load-balancer_member")
ROLES = {"k8s": USUAL, "viewer": ("reader",), "small": USUAL}
PROJECTS = {"k8s": "k8s", "viewer": "k8s", "small": "small"}  # by user
ENDPOINTS = (
    ("nova", "compute", "/v2.1"),
    ("placement", "placement", ""),
    ("glance", "image", ""),
    ("neutron", "network", "/"),
    ("octavia", "load-balancer", ""),
    ("cinder", "block-storage", "/v3/$(project_id)s"),
)
PORT_IS_UP = (
    "CREATE OR REPLACE TRIGGER lab_port_up_{when} BEFORE {when} ON ports FOR EACH ROW"
    " SET NEW.status = IF(NEW.device_owner LIKE 'compute:%' AND NEW.status IN ('DOWN', 'BUILD')"
    " AND NEW.admin_state_up, 'ACTIVE', NEW.status)"
)
AGENT = (
    "INSERT INTO agents (id, agent_type, `binary`, topic, host, admin_state_up, created_at,"
    " started_at, heartbeat_timestamp, description, configurations, `load`) VALUES (uuid(),"
    " 'Open vSwitch agent', 'neutron-openvswitch-agent', 'N/A', %s, 1, now(), now(), '2037-01-01',"
    ' \'\', \'{"tunnel_types": ["vxlan"], "bridge_mappings": {"physnet1": "br-ex"},'
    ' "tunneling_ip": "127.0.0.1"}\', 0)'
)


def connect(user: str = "admin", project: str = "admin") -> Any:
    auth = {"username": user, "password": E["PW"], "project_name": project}
    domains = {"user_domain_id": "default", "project_domain_id": "default"}
    return openstack.connect(
        auth_type="password",
        auth={"auth_url": E["OS_AUTH_URL"], **auth, **domains},
        region_name=E["REGION"],
        load_envvars=False,
        load_yaml_config=False,
    )


def wait(what: str, look: Callable[[], Any], seconds: float = 90.0) -> None:
    end = time.monotonic() + seconds
    while not look():
        if time.monotonic() > end:
            sys.exit(f"openstack lab: not within {seconds:g} s: {what}")
        time.sleep(0.1)


def identity() -> None:
    """Users with their roles, and the catalogue."""
    keystone = connect().identity
    roles = {role.name: role for role in keystone.roles()}
    for name in {"service", *USUAL} - set(roles):
        roles[name] = keystone.create_role(name=name)
    projects = {
        name: keystone.create_project(name=name, domain_id="default")
        for name in ("service", *set(PROJECTS.values()))
    }
    users: dict[str, tuple[str, tuple[str, ...]]] = {"svc": ("service", ("admin", "service"))}
    users |= {name: (PROJECTS[name], wanted) for name, wanted in ROLES.items()}
    for name, (project, wanted) in users.items():
        user = keystone.create_user(name=name, password=E["PW"], domain_id="default")
        for role in wanted:
            keystone.assign_project_role_to_user(projects[project], user, roles[role])
    for name, kind, path in ENDPOINTS:
        service = keystone.create_service(name=name, type=kind)
        for interface in ("public", "internal", "admin"):
            keystone.create_endpoint(
                service_id=service.id,
                interface=interface,
                url=URLS[name] + path,
                region_id=E["REGION"],
            )


def cloud() -> None:
    """What the cloud's operator makes: flavors, images, the outside network, hosts and zones."""
    admin = connect()
    nova, net = admin.compute, admin.network
    for fid, name, ram in (("1", "m1.tiny", 512), ("2", "m1.small", 2048), ("200", "amphora", 512)):
        nova.create_flavor(id=fid, name=name, ram=ram, vcpus=1, disk=1)
    formats = {"disk_format": "raw", "container_format": "bare", "visibility": "public"}
    for name in ("cirros", "amphora"):
        content = {"data": b"x" * 1024, "validate_checksum": False}
        admin.image.create_image(name=name, tags=[name], **content, **formats)
    make_agents()
    outside = {"provider_network_type": "flat", "provider_physical_network": "physnet1"}
    public = net.create_network(name="public", is_router_external=True, **outside)
    for name, cidr in (("public-a", "203.0.113.0/24"), ("public-dmz", "198.51.100.0/24")):
        subnet = net.create_subnet(
            name=name, network_id=public.id, ip_version=4, cidr=cidr, enable_dhcp=False
        )
    net.set_tags(subnet, ["dmz"])
    management = net.create_network(name="lb-mgmt", is_shared=False)
    net.create_subnet(name="lb-mgmt", network_id=management.id, ip_version=4, cidr="192.168.0.0/16")
    # Amphorae are servers of the service project: the group must be theirs.
    service = admin.identity.find_project("service").id
    group = net.create_security_group(name="lb-mgmt", project_id=service)
    (RUN / "octavia" / "ids").write_text(f"MGMT_NET={management.id}\nMGMT_SG={group.id}\n")
    limits = {"floating_ips": 1, "ports": 5, "security_groups": 2, "security_group_rules": 12}
    net.update_quota(admin.identity.find_project("small").id, **limits)
    join_zones(admin)


def join_zones(admin: Any) -> None:
    """A host joins a zone only once its resource provider exists, and is used once it is mapped."""
    nova, placement = admin.compute, admin.placement

    def hosts_up() -> bool:
        services = nova.services(binary="nova-compute")
        return set(HOSTS) <= {one.host for one in services if one.state == "up"}

    def providers_exist() -> bool:
        return set(HOSTS) <= {
            one.name
            for one in placement.resource_providers()
            if list(placement.resource_provider_inventories(one))
        }

    wait("the compute services are up", hosts_up)
    wait("the resource providers exist", providers_exist)
    config = (
        f"--config-file={E['ETC']}/nova/nova.conf",
        f"--config-file={E['ETC']}/nova/nova-db.conf",
    )
    manage = [f"{E['V']}/bin/nova-manage", *config, "cell_v2", "discover_hosts"]
    subprocess.run(manage, check=True, stdout=subprocess.DEVNULL)
    zones = {zone: nova.create_aggregate(name=zone, availability_zone=zone) for zone in ZONES}
    for host, zone in HOSTS.items():
        nova.add_host_to_aggregate(zones[zone].id, host)


def make_agents() -> None:
    """Neutron wants an agent on each host, which turns ports ACTIVE: the database plays it."""
    import pymysql

    where = {"host": HOST, "port": int(E["P_DB"]), "user": "root", "database": "neutron"}
    with pymysql.connect(**where, autocommit=True).cursor() as cursor:
        for host in HOSTS:
            cursor.execute(AGENT, (host,))
        for when in ("INSERT", "UPDATE"):
            cursor.execute(PORT_IS_UP.format(when=when))


def tenant() -> None:
    """What the owner of a cluster makes: networks, a router, servers, addresses, volumes."""
    admin, conn = connect(), connect("k8s", "k8s")
    net, cinder, project = conn.network, conn.block_storage, conn.current_project_id
    admin.compute.update_quota_set(project, instances=-1, cores=-1, ram=-1)
    nodes, dual = net.create_network(name="nodes"), net.create_network(name="dual")
    v6 = {"ipv6_address_mode": "dhcpv6-stateful", "ipv6_ra_mode": "dhcpv6-stateful"}
    subnets = {
        name: net.create_subnet(name=name, network_id=of.id, ip_version=ip, cidr=cidr, **more)
        for name, of, ip, cidr, more in (
            ("nodes", nodes, 4, "10.0.0.0/16", {}),
            ("dual-v4", dual, 4, "10.9.0.0/24", {}),
            ("dual-v6", dual, 6, "fd00:9::/64", v6),
        )
    }
    public = net.find_network("public")
    router = net.create_router(name="kube", external_gateway_info={"network_id": public.id})
    for subnet in subnets.values():
        net.add_interface_to_router(router, subnet_id=subnet.id)
    group = net.create_security_group(name="nodes", description="the cluster's nodes")
    image = conn.image.find_image("cirros")
    flavors = {flavor.name: flavor.id for flavor in conn.compute.flavors()}
    first, last = ZONES[0], ZONES[-1]
    plan = {  # name: zone, flavor, networks
        "node-1": (first, "m1.small", [nodes]),
        "node-2": (first, "m1.tiny", [nodes]),
        "node-3": (last, "m1.small", [nodes]),
        "dual-1": (last, "m1.tiny", [dual]),
        "two-nics-1": (last, "m1.tiny", [nodes, dual]),
    }

    def make_server(name: str) -> Any:
        zone, flavor, networks = plan[name]
        made = conn.compute.create_server(
            name=name,
            image_id=image.id,
            flavor_id=flavors[flavor],
            availability_zone=zone,
            networks=[{"uuid": network.id} for network in networks],
            security_groups=[{"name": group.id}],
        )
        return conn.compute.wait_for_server(made, interval=0.2, wait=120)

    servers = dict(zip(plan, ThreadPoolExecutor(8).map(make_server, plan), strict=True))
    floating = {}
    for name in ("node-1", "node-2", "node-3"):
        port = next(net.ports(device_id=servers[name].id, network_id=nodes.id))
        made = net.create_ip(floating_network_id=public.id, port_id=port.id, description=name)
        floating[name] = made.floating_ip_address
    small = admin.identity.find_project("small").id
    admin.compute.update_quota_set(small, instances=1, cores=1)
    world = {
        "region": E["REGION"],
        "project_id": project,
        "endpoints": URLS,
        "networks": {one.name: one.id for one in (nodes, dual, public)},
        "subnets": {
            **{name: subnet.id for name, subnet in subnets.items()},
            **{subnet.name: subnet.id for subnet in net.subnets(network_id=public.id)},
        },
        "router": router.id,
        "security_group": group.id,
        "image": image.id,
        "flavors": flavors,
        "servers": {name: server.id for name, server in servers.items()},
        "floating": floating,
        "volumes": make_volumes(admin, cinder),
        "application_credentials": make_credentials(conn),
    }
    write(world)


def make_volumes(admin: Any, cinder: Any) -> dict[str, str]:
    """One in each zone."""
    storage = admin.block_storage

    def is_up() -> bool:
        services = list(storage.services(binary="cinder-volume"))
        return len(services) >= len(ZONES) and all(one.state == "up" for one in services)

    storage.create_type(name="fake", extra_specs={"volume_backend_name": "fake"})
    wait("cinder-volume is up", is_up)
    made = {
        zone: cinder.create_volume(name=f"volume-{zone}", size=1, availability_zone=zone)
        for zone in ZONES
    }
    for volume in made.values():
        cinder.wait_for_status(volume, "available", ["error"], interval=0.2, wait=90)
    return {zone: volume.id for zone, volume in made.items()}


def make_credentials(conn: Any) -> dict[str, dict[str, str]]:
    """Application credentials: with all roles, and to read only."""
    made = {
        name: conn.identity.create_application_credential(
            user=conn.current_user_id, name=name, **roles
        )
        for name, roles in (("ccm", {}), ("ccm-reader", {"roles": [{"name": "reader"}]}))
    }
    return {name: {"id": one.id, "secret": one.secret} for name, one in made.items()}


def octavia() -> None:
    """Octavia's flavor and availability zone, and the small project's quota."""
    conn = connect()
    lb, first = conn.load_balancer, ZONES[0]
    data = {"provider_name": "amphora", "flavor_data": '{"loadbalancer_topology": "SINGLE"}'}
    profile = lb.create_flavor_profile(name="single", **data)
    flavor = lb.create_flavor(name="single", flavor_profile_id=profile.id, is_enabled=True)
    data = {"provider_name": "amphora", "availability_zone_data": f'{{"compute_zone": "{first}"}}'}
    zone_profile = lb.create_availability_zone_profile(name=first, **data)
    zone = {"availability_zone_profile_id": zone_profile.id, "is_enabled": True}
    lb.create_availability_zone(name=f"lb-{first}", **zone)
    small = conn.identity.find_project("small").id
    lb.update_quota(small, load_balancers=1, listeners=2, pools=2, members=2, health_monitors=1)
    world = json.loads((RUN / "world.json").read_text())
    write({**world, "lb_flavor": flavor.id, "lb_zone": f"lb-{first}"})
    # Octavia logs in at Neutron with the first balancer; two first ones at once fail: "password is
    # a required attribute".
    with suppress(openstack.exceptions.BadRequestException):
        lb.create_load_balancer(vip_subnet_id=str(uuid4()))
        raise SystemExit("octavia takes a subnet that does not exist")


def write(world: Any) -> None:
    """world.json for tests, clouds.yaml for people and tools, cloud.conf for a controller."""
    (RUN / "world.json").write_text(json.dumps(world, indent=1))
    url, region = E["OS_AUTH_URL"], world["region"]
    clouds: dict[str, Any] = {}
    for name, project in (("admin", "admin"), *PROJECTS.items()):
        auth = {"auth_url": url, "username": name, "password": E["PW"], "project_name": project}
        for whose, key in product(("user", "project"), ("domain_id",)):
            auth[f"{whose}_{key}"] = "default"
        clouds[name] = {"region_name": region, "auth_type": "password", "auth": auth}
    for name, secret in world["application_credentials"].items():
        auth = {f"application_credential_{key}": value for key, value in secret.items()}
        kind = {"region_name": region, "auth_type": "v3applicationcredential"}
        clouds[name] = {**kind, "auth": {"auth_url": url, **auth}}
    (RUN / "clouds.yaml").write_text(json.dumps({"clouds": clouds}, indent=1))
    ccm = world["application_credentials"]["ccm"]
    lines = (
        "[Global]",
        f"auth-url = {url}",
        f"application-credential-id = {ccm['id']}",
        f"application-credential-secret = {ccm['secret']}",
        f"region = {region}",
        "[Networking]",
        "internal-network-name = nodes",
        "[LoadBalancer]",
        f"floating-network-id = {world['networks']['public']}",
        f"subnet-id = {world['subnets']['nodes']}",
        "[Route]",
        f"router-id = {world['router']}",
    )
    (RUN / "cloud.conf").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    {"identity": identity, "cloud": cloud, "tenant": tenant, "octavia": octavia}[sys.argv[1]]()
