"""A proxy between us and the API server that breaks, or mixes up answers."""

import pytest

from ccm.errors import KubernetesError, Unreachable
from ccm.kube.client import JSON_PATCH, about, is_one_of
from ccm.kube.cluster_identity import read_cluster_uid
from ccm.kube.lease import LeaseClient
from ccm.kube.service_accounts import ServiceAccount, request_token
from ccm.model.objects import Json
from ccm.model.writes import Merge, Patch
from ccm.supervisor.deletion_state import new_freeze
from ccm.supervisor.freeze import FROZEN, SharedFreeze
from tests.support.context import FakePort
from workers.performer import Performer

from .api_server import json_answer, serving


@pytest.mark.parametrize("status", [300, 302, 304, 307, 399])
async def test_a_redirection_is_no_answer_and_no_write(status: int) -> None:
    elsewhere = json_answer({"metadata": {"name": "n1"}}, status, Location="https://elsewhere/")
    async with serving(elsewhere) as (server, kube):
        with pytest.raises(KubernetesError) as raised:
            await kube.patch("/api/v1/nodes/n1", JSON_PATCH, [])
        assert raised.value.status == status
        assert len(server.requests) == 1


EDIT: Json = {"op": "add", "path": "/metadata/labels", "value": {}}
NODE, SERVICE = "/api/v1/nodes/n%201", "/api/v1/namespaces/a/services/s"


@pytest.mark.parametrize(
    ("path", "meta"),
    [
        (NODE, {"name": "n 1"}),
        (f"{SERVICE}/status", {"name": "s", "namespace": "a"}),
        ("/api/v1/namespaces/kube-system", {"name": "kube-system"}),
    ],
)
def test_an_answer_about_the_object_is_one(path: str, meta: Json) -> None:
    assert about(path, {"metadata": meta}) == {"metadata": meta}


ENDPOINTS: Json = {"kind": "Endpoints", "metadata": {"name": "s", "namespace": "a"}}


@pytest.mark.parametrize(
    "answer", [{}, {"metadata": {"name": "s"}}, {"metadata": {"name": "n 1"}}, ENDPOINTS]
)
async def test_an_answer_about_another_object_is_no_proof_of_a_write(answer: Json) -> None:
    async with serving(json_answer(answer)) as (_, kube):
        performer = Performer(kube, FakePort().permission, grace=5.0)
        for write in (Patch(SERVICE, (EDIT,)), Merge(f"{SERVICE}/status", {})):
            with pytest.raises(Unreachable, match="another object"):
                await performer.perform(write)


@pytest.mark.parametrize(
    ("plural", "kind"),
    [
        ("services", "Service"),
        ("leases", "Lease"),
        ("networkpolicies", "NetworkPolicy"),
        ("ingresses", "Ingress"),
        ("endpoints", "Endpoints"),
        ("nodes", "PartialObjectMetadata"),
    ],
)
def test_a_kind_is_known_by_its_plural(plural: str, kind: str) -> None:
    assert is_one_of(plural, kind)
    assert not is_one_of(plural, "ServiceAccount")


async def test_the_metadata_of_an_object_is_not_the_object() -> None:
    """Another client may have asked for no more; a ConfigMap without data would have no client."""
    bare = json_answer({"kind": "PartialObjectMetadata", "metadata": {"name": "a"}})
    async with serving(bare) as (_, kube):
        with pytest.raises(Unreachable, match="the metadata alone"):
            await kube.get("/api/v1/nodes/a")


@pytest.mark.parametrize(
    ("kind", "name", "is_gone"),
    [
        ("services", "s", True),
        ("namespaces", "a", True),
        ("services", "t", False),
        ("endpoints", "s", False),
    ],
)
async def test_the_404_about_another_object_is_no_word_about_ours(
    kind: str, name: str, is_gone: bool
) -> None:
    status = {"kind": "Status", "reason": "NotFound", "details": {"kind": kind, "name": name}}
    async with serving(json_answer(status, 404)) as (_, kube):
        with pytest.raises(KubernetesError) as raised:
            await kube.get(SERVICE, {"fieldManager": "t"})
        assert raised.value.is_gone is is_gone


async def test_the_cluster_is_not_told_by_another_object() -> None:
    other = json_answer({"metadata": {"name": "default", "uid": "another"}})
    async with serving(other) as (_, kube):
        with pytest.raises(Unreachable, match="another object"):
            await read_cluster_uid(kube)


@pytest.mark.parametrize(
    "spec",
    [{}, {"holderIdentity": "two"}, {"holderIdentity": ""}, {"holderIdentity": "one"}],
    ids=["none", "other", "free", "ours-of-before"],
)
async def test_a_lease_is_held_only_by_an_answer_that_has_our_write(spec: Json) -> None:
    old = json_answer({"metadata": {"name": "ccm", "namespace": "kube-system"}, "spec": spec})
    async with serving(old) as (_, kube):
        lease = LeaseClient(kube, "kube-system", "ccm", "one", 15.0)
        for write in (lease.create, lease.update):
            with pytest.raises(Unreachable, match="not what we wrote"):
                await write(1.0)


@pytest.mark.parametrize(("kind", "name"), [("Lease", "other"), ("ServiceAccount", "ccm")])
async def test_another_lease_is_not_taken_for_ours(kind: str, name: str) -> None:
    """An account of this name has no annotation of a freeze."""
    other = {"kind": kind, "metadata": {"name": name, "namespace": "kube-system"}}
    async with serving(json_answer(other | {"spec": {"holderIdentity": "two"}})) as it:
        lease = LeaseClient(it[1], "kube-system", "ccm", "one", 15.0)
        with pytest.raises(Unreachable, match="another object"):
            await lease.get(1.0)


LEASE: Json = {"metadata": {"name": "ccm", "namespace": "kube-system"}}


@pytest.mark.parametrize("answer", [LEASE, {"metadata": {"name": "other", "namespace": "a"}}])
async def test_deletions_are_frozen_only_by_an_answer_that_has_the_freeze(answer: Json) -> None:
    async with serving(json_answer(LEASE), json_answer(answer)) as (_, kube):
        lease = LeaseClient(kube, "kube-system", "ccm", "one", 15.0)
        with pytest.raises(Unreachable):
            await SharedFreeze(kube, lease).set(new_freeze("audit", "ada"))
        assert not lease.annotations


async def test_a_lease_from_before_the_freeze_lifts_it_for_no_one() -> None:
    """A proxy may have kept it; the leader reads the Lease where a renewal has failed."""
    frozen = LEASE["metadata"] | {"annotations": {FROZEN: "audit"}}
    now, before = frozen | {"resourceVersion": "12"}, LEASE["metadata"] | {"resourceVersion": "11"}
    answers = [json_answer({"metadata": metadata}) for metadata in (now, before, before)]
    async with serving(*answers) as (_, kube):
        lease = LeaseClient(kube, "kube-system", "ccm", "one", 15.0)
        for _ in answers:
            await lease.get(1.0)
            assert SharedFreeze(kube, lease).get()


async def test_the_token_of_another_account_is_not_ours() -> None:
    """The worker would have the rights of another for most of an hour."""
    meta = {"name": "route-controller", "namespace": "kube-system"}
    other = {"metadata": meta, "spec": {"expirationSeconds": 3600}, "status": {"token": "t"}}
    async with serving(json_answer(other)) as (_, kube):
        with pytest.raises(Unreachable, match="another object"):
            await request_token(kube, ServiceAccount("service-controller"))
        assert (await request_token(kube, ServiceAccount("route-controller"))).bearer == "t"
