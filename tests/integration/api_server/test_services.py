"""What the server gives a Service, takes back, and refuses."""

from typing import Any

from tests.integration.api_server.client import Api, Reply, new_balancer, new_service

TWO_PORTS = [{"name": "http", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}]


def node_ports(reply: Reply) -> dict[str, int]:
    return {port.get("name", ""): port.get("nodePort", 0) for port in reply.body["spec"]["ports"]}


async def change(api: Api, service: Reply, **spec: Any) -> Reply:
    return await api.merge(service.path, {"spec": spec})


async def set_ingress(api: Api, service: Reply, *ingress: dict[str, Any]) -> Reply:
    body = {"status": {"loadBalancer": {"ingress": ingress}}}
    return await api.merge(f"{service.path}/status", body)


async def test_a_service_gets_its_defaults_and_an_address(api: Api) -> None:
    spec = (await new_service(api)).body["spec"]
    address = spec.pop("clusterIP")
    assert spec.pop("clusterIPs") == [address]
    assert spec == {
        "ports": [{"protocol": "TCP", "port": 80, "targetPort": 80}],
        "type": "ClusterIP",
        "sessionAffinity": "None",
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
        "internalTrafficPolicy": "Cluster",
    }


async def test_a_balancer_gets_node_ports_of_its_own(api: Api) -> None:
    first, second = [await new_balancer(api, ports=TWO_PORTS) for _ in range(2)]
    assert first.body["spec"]["allocateLoadBalancerNodePorts"] is True
    assert first.body["spec"]["externalTrafficPolicy"] == "Cluster"
    taken = [*node_ports(first).values(), *node_ports(second).values()]
    assert len(set(taken)) == 4
    assert all(30000 <= port <= 32767 for port in taken)


async def test_a_service_gets_only_what_its_type_and_its_traffic_mean(api: Api) -> None:
    local = await new_balancer(api, externalTrafficPolicy="Local")
    assert 30000 <= local.body["spec"]["healthCheckNodePort"] <= 32767
    changed = await change(api, local, externalTrafficPolicy="Cluster")
    assert "healthCheckNodePort" not in changed.body["spec"]
    balancer = await new_balancer(api, allocateLoadBalancerNodePorts=False)
    assert node_ports(balancer) == {"": 0}
    spec = (await new_service(api, clusterIP="None", selector={"a": "b"})).body["spec"]
    assert (spec["clusterIP"], spec["clusterIPs"]) == ("None", ["None"])
    spec = (await new_service(api, type="ExternalName", externalName="a.example")).body["spec"]
    assert not {"clusterIP", "clusterIPs", "ipFamilies", "internalTrafficPolicy"} & spec.keys()


async def test_an_external_name_keeps_node_ports_that_no_one_gave_it(api: Api) -> None:
    """Also that of another Service, and what is out of their range: it has none of them."""
    taken = node_ports(await new_balancer(api))[""]
    said = {"other": taken, "https": 443}
    ports = [{"name": name, "port": number, "nodePort": number} for name, number in said.items()]
    reply = await new_service(api, type="ExternalName", externalName="a.example", ports=ports)
    assert node_ports(reply) == said


async def test_the_address_stays_and_may_be_left_out(api: Api) -> None:
    service = await new_service(api)
    body = {"metadata": {"name": service.name}, "spec": {"ports": [{"port": 81}]}}
    put = await api.replace(service.path, body)
    assert put.body["spec"]["clusterIP"] == service.body["spec"]["clusterIP"]


async def test_a_balancer_that_becomes_plain_loses_what_only_a_balancer_has(api: Api) -> None:
    service = await new_balancer(api, loadBalancerClass="example.com/a")
    await set_ingress(api, service, {"ip": "192.0.2.1"})
    reply = await change(api, service, type="ClusterIP")
    lost = {"allocateLoadBalancerNodePorts", "externalTrafficPolicy", "loadBalancerClass"}
    assert not lost & reply.body["spec"].keys()
    assert node_ports(reply) == {"": 0}
    assert reply.body["status"] == {"loadBalancer": {}}


async def test_ingress_is_stored_and_replaced_as_a_whole(api: Api) -> None:
    service = await new_balancer(api)
    entry = {"hostname": "a.example", "ports": [{"port": 80, "protocol": "TCP"}]}
    reply = await set_ingress(api, service, entry, {"ip": "192.0.2.1", "ipMode": "Proxy"})
    assert reply.body["status"]["loadBalancer"]["ingress"] == [
        entry,
        {"ip": "192.0.2.1", "ipMode": "Proxy"},
    ]
    body = {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.2"}]}}}
    reply = await api.strategic(f"{service.path}/status", body)
    ingress = reply.body["status"]["loadBalancer"]["ingress"]
    assert [each["ip"] for each in ingress] == ["192.0.2.2"]
    assert (await set_ingress(api, service)).body["status"] == {"loadBalancer": {}}
