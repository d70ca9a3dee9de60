"""All that is sent, once more before witnesses that we did not write: Prism and godo."""

import subprocess
from pathlib import Path

import orjson
import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.testkit.gate import KitGate
from ccm.cloud.testkit.harness import node, port, service
from ccm.errors import CloudError
from ccm.model.objects import Json
from ccm.providers.digitalocean.api import DigitalOceanApi
from ccm.providers.digitalocean.config import GlobalSection
from ccm.providers.digitalocean.firewall_plan import Inbound
from ccm.providers.digitalocean.lb.annotations import PREFIX
from tests.labs.digitalocean.prism import proxy
from tests.labs.digitalocean.server import TOKEN, VPC, DigitalOcean
from tests.providers.digitalocean.adapter import config_of
from tests.providers.digitalocean.conftest import Started, host
from tests.providers.digitalocean.test_digitalocean_takeover import CASES, PLAIN
from tests.support.kube.build import CLIENTS, build_binaries
from tests.support.running import long

pytestmark = [long, pytest.mark.timeout(900)]

UUID = "4de7ac8b-495b-4884-9a69-1050c6793cd6"


async def use_everything(do: DigitalOcean, url: str) -> None:
    """Every kind of request that the product makes, and every annotation of the cases."""
    text = config_of(do, "cluster-id = one", f"vpc-id = {VPC}").replace(do.url, url)
    cloud = await Started(f"{text}[Firewall]\nname = k8s-access\ntag = worker\n").start()
    one, two = (host(do.add_droplet(name)) for name in ("one", "two"))
    await cloud.describe(node("one"), two, node("none", "digitalocean://9"))
    certificate = do.add_certificate("shop", "lets_encrypt")
    renewed = do.add_certificate("shop", "lets_encrypt")
    for name, (annotations, spec, _) in CASES.items():
        named = {PREFIX + key: value for key, value in annotations.items()}
        if f"{PREFIX}certificate-id" in named:
            named[f"{PREFIX}certificate-id"] = certificate
        asked = service(name, named, **spec)
        await cloud.ensure(asked, one)
        await cloud.ensure(
            service(name, named | {f"{PREFIX}name": f"n-{len(name)}"}, **spec), one, two
        )
        if name == "https":
            for record in do.balancers.values():
                for rule in record["forwarding_rules"]:
                    rule["certificate_id"] = rule["certificate_id"] and renewed
            await cloud.ensure(asked, one)
        assert cloud.load_balancers
        await invoke(cloud.load_balancers.update_nodes, asked, [one])
        await invoke(cloud.load_balancers.delete, asked)
    http3 = {
        "type": "REGIONAL",
        "certificate-name": "shop",
        "http3-port": "443",
        "http2-ports": "443",
    }
    named = {PREFIX + key: value for key, value in http3.items()}
    await cloud.ensure(service("http3", named, ports=[port(443)]), one)
    made = {PREFIX + key: value for key, value in {"ip": "192.0.2.7", "subnet-uuid": UUID}.items()}
    own = service("own", made)
    await cloud.ensure(own, one)
    for record in do.balancers.values():
        record["tags"] = [tag for tag in record["tags"] if tag != "k8s:one"]
    await cloud.ensure(own, one)
    assert cloud.firewalls
    for rules in ({Inbound("tcp", 30080)}, {Inbound("udp", 53), Inbound("tcp", 10256, own.uid)}):
        await cloud.firewalls.ensure(rules, [own])


async def test_prism_lets_every_request_and_answer_through(
    do: DigitalOcean, tmp_path: Path
) -> None:
    """What it does not let through is an error, and so the end of a call."""
    with proxy(do.url, tmp_path / "prism.log") as url:
        await use_everything(do, url)
        assert len(do.requests) > 100
        before = len(do.requests)
        api = DigitalOceanApi(GlobalSection(token=TOKEN, api_url=url), KitGate(10.0), "test")
        wrong = {**PLAIN, "name": "x", "droplet_ids": ["7"]}
        with pytest.raises(CloudError, match="CreateLoadBalancer: "):
            await api.write("CreateLoadBalancer", "POST", "/load_balancers", wrong)
        await api.close()
        assert len(do.requests) == before, "it never came here"


async def test_godo_knows_every_field_that_is_sent(do: DigitalOcean) -> None:
    await use_everything(do, do.url)
    sent = [
        {"kind": "resources" if path.endswith("/resources") else path.split("/")[2], "body": body}
        for _, path, _, body in do.requests
        if body is not None
    ]
    assert {one["kind"] for one in sent} == {"load_balancers", "firewalls", "tags", "resources"}
    assert read_by_godo(sent) == (0, f"{len(sent)} read, 0 wrong")
    status, reported = read_by_godo([{"kind": "load_balancers", "body": {"nmae": "web"}}])
    assert status == 1
    assert 'unknown field "nmae"' in reported


def read_by_godo(requests: list[Json]) -> tuple[int, str]:
    """How the reading program ends, and what it says."""
    program = build_binaries(CLIENTS) / "godo-strict"
    lines = b"\n".join(map(orjson.dumps, requests))
    done = subprocess.run([program], input=lines, capture_output=True, check=False)
    return done.returncode, done.stdout.decode().strip()
