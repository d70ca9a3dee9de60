"""What clients learn about the server, and what it says where there is nothing."""

import pytest

from tests.contract.client import NODES, Api

WITHOUT_STATUS = ("configmaps", "endpoints", "events", "pods", "secrets", "serviceaccounts")
WITH_STATUS = ("namespaces", "nodes", "persistentvolumes", "services")
CORE = (*WITHOUT_STATUS, *WITH_STATUS, *(f"{name}/status" for name in WITH_STATUS))
REVIEWS = "/apis/authorization.k8s.io/v1"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
async def test_a_server_that_is_well_says_ok(api: Api, path: str) -> None:
    reply = await api.get(path)
    assert (reply.status, reply.body) == (200, "ok")


async def test_the_version_and_the_groups_are_told(api: Api) -> None:
    told = (await api.get("/version")).body
    assert (told["major"], told["minor"]) == ("1", "36")
    assert told["gitVersion"].startswith("v1.36.")
    assert (await api.get("/api")).body["versions"] == ["v1"]
    groups = {group["name"]: group for group in (await api.get("/apis")).body["groups"]}
    one = (await api.get("/apis/coordination.k8s.io")).body
    assert one["kind"] == "APIGroup"
    version = {"groupVersion": "coordination.k8s.io/v1", "version": "v1"}
    assert one["preferredVersion"] == version
    assert groups["coordination.k8s.io"]["preferredVersion"] == version
    body = (await api.get("/apis/coordination.k8s.io/v1")).body
    lease = next(each for each in body["resources"] if each["name"] == "leases")
    assert (lease["kind"], lease["namespaced"], lease["singularName"]) == ("Lease", True, "lease")


@pytest.mark.parametrize("name", CORE)
async def test_core_resources_are_described(api: Api, name: str) -> None:
    resources = {each["name"]: each for each in (await api.get("/api/v1")).body["resources"]}
    resource = resources[name]
    plural, _, subresource = name.partition("/")
    namespaced = plural not in ("namespaces", "nodes", "persistentvolumes")
    assert resource["namespaced"] is namespaced
    assert resource["kind"].lower() in (plural, plural.removesuffix("s"))
    verbs = set(resource["verbs"])
    if subresource:
        assert verbs == {"get", "patch", "update"}
    else:
        assert verbs >= {"create", "delete", "get", "list", "patch", "update", "watch"}


@pytest.mark.parametrize("path", ["/unknown", "/apis/unknown/v1/things"])
async def test_a_path_of_no_group_is_a_plain_404(api: Api, path: str) -> None:
    reply = await api.get(path)
    assert (reply.status, reply.body) == (404, "404 page not found\n")


async def test_a_resource_of_no_kind_is_404_and_a_client_that_takes_no_json_406(api: Api) -> None:
    no_json = await api.call("GET", NODES, headers={"Accept": "application/unknown"})
    assert no_json.status == 406
    reply = await api.get("/api/v1/unknown")
    assert reply.refusal == (404, "NotFound")
    assert reply.body["message"] == "the server could not find the requested resource"


@pytest.mark.parametrize(
    ("method", "path"), [("PUT", NODES), ("PATCH", NODES), ("POST", f"{NODES}/any")]
)
async def test_a_method_without_a_meaning_is_405(api: Api, method: str, path: str) -> None:
    assert (await api.call(method, path, {})).refusal == (405, "MethodNotAllowed")


async def test_access_is_reviewed(api: Api) -> None:
    about = {"resourceAttributes": {"verb": "list", "resource": "nodes"}}
    reply = await api.create(f"{REVIEWS}/selfsubjectaccessreviews", {"spec": about})
    assert reply.status == 201
    assert reply.body["kind"] == "SelfSubjectAccessReview"
    assert reply.body["status"]["allowed"] is True
    asked = {**about, "user": "admin", "groups": ["system:masters"]}
    reply = await api.create(f"{REVIEWS}/subjectaccessreviews", {"spec": asked})
    assert reply.body["status"]["allowed"] is True


@pytest.mark.parametrize(
    ("path", "columns"),
    [
        (NODES, "Name Status Roles Age Version"),
        ("/api/v1/services", "Name Type Cluster-IP External-IP Port(s) Age"),
        ("/api/v1/namespaces", "Name Status Age"),
        ("/api/v1/events", "Last_Seen Type Reason Object Message"),
        ("/apis/coordination.k8s.io/v1/leases", "Name Holder Age"),
    ],
)
async def test_lists_can_be_tables(api: Api, path: str, columns: str) -> None:
    table = (await api.call("GET", path, headers={"Accept": TABLE})).body
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    shown = [each["name"] for each in table["columnDefinitions"] if each["priority"] == 0]
    assert shown == [column.replace("_", " ") for column in columns.split()]
    for row in table["rows"]:
        assert len(row["cells"]) == len(table["columnDefinitions"])
        assert row["object"]["kind"] == "PartialObjectMetadata"
