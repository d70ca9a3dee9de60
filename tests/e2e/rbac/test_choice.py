"""Whom each worker acts as is chosen by answers alone: trouble of the API server is none."""

from dataclasses import replace

import orjson
import pytest
from aiohttp import web

from ccm.checks.finding import CheckState
from ccm.checks.permissions import evaluate_candidates
from ccm.errors import KubernetesError, Unreachable
from ccm.kube.access_review import AccessReview
from ccm.kube.service_accounts import SELF_REVIEWS, ServiceAccount
from ccm.manifests.rbac import worker_rules
from ccm.model.objects import Json
from ccm.model.rbac import PolicyRule
from ccm.settings import Settings
from ccm.supervisor.accounts import AccountCandidate, best, choose_accounts
from tests.unit.api_server import Handler, failure, json_answer, serving

REVIEWS = "/selfsubjectaccessreviews"
OWN = ServiceAccount("ccm", "cloud")
SETTINGS = Settings(use_service_account_credentials=True)


async def issue(request: web.Request) -> web.StreamResponse:
    """A token of the account in the path."""
    _, namespace, _, name, _ = request.path.rsplit("/", 4)
    body = {"spec": {"expirationSeconds": 3600}, "status": {"token": "t"}}
    return await json_answer({"metadata": {"name": name, "namespace": namespace}, **body})(request)


def reviewed(status: Json, **spec: Json) -> Handler:
    """The answer to a review; about what is asked, or what is given here."""

    async def answer(request: web.Request) -> web.StreamResponse:
        asked = orjson.loads(await request.read())
        return await json_answer({**asked, "spec": asked["spec"] | spec, "status": status})(request)

    return answer


DEFAULTS: dict[str, Handler] = {
    SELF_REVIEWS: json_answer({"status": {"userInfo": {"username": OWN.user}}}),
    "/token": issue,
    REVIEWS: reviewed({"allowed": True}),
}


async def chosen(**changed: Handler) -> dict[str, ServiceAccount]:
    """Whom the workers act as; `changed` answers to paths that contain the key."""

    async def answer(request: web.Request) -> web.StreamResponse:
        for part, handler in (*changed.items(), *DEFAULTS.items()):
            if part in request.path:
                return await handler(request)
        raise AssertionError(request.path)

    async with serving(answer) as (_, kube):
        _, accounts = await choose_accounts(kube, SETTINGS, worker_rules(SETTINGS))
        return accounts


async def test_where_an_account_is_missing_the_next_one_is_taken() -> None:
    found = await chosen(
        **{"cloud-node-controller": failure(404, "NotFound")},
        **{"volume-label-controller": failure(404, "NotFound")},
    )
    assert found["node"] == ServiceAccount("node-controller")
    assert found["volume_label"] == OWN


@pytest.mark.parametrize("status", [401, 404, 500, 503])
async def test_a_worker_acts_as_no_other_while_a_token_is_not_to_be_had(status: int) -> None:
    """A proxy answers 404, too, without the word of the API server."""
    with pytest.raises(KubernetesError):
        await chosen(**{"cloud-node-controller": failure(status, "Trouble")})


async def test_no_controller_is_left_out_as_no_one_says_who_we_are() -> None:
    missing = failure(404, "NotFound")
    with pytest.raises(KubernetesError):
        await chosen(**{SELF_REVIEWS: failure(500, "Trouble"), "volume-label-controller": missing})


@pytest.mark.parametrize("status", [{}, {"allowed": "yes"}])
async def test_an_answer_that_says_nothing_is_no_denial(status: Json) -> None:
    with pytest.raises(Unreachable, match="empty"):
        await chosen(**{REVIEWS: reviewed(status)})


async def test_the_answer_to_the_review_of_another_is_no_denial() -> None:
    """A proxy may mix up whose answer is whose, and a controller was left out until a restart."""
    other: Json = {"verb": "get", "resource": "secrets"}
    with pytest.raises(Unreachable, match="another request"):
        await chosen(**{REVIEWS: reviewed({"allowed": False}, resourceAttributes=other)})


# What is made of the answers.


def candidate(name: str, *denied: str, problem: str = "") -> AccountCandidate:
    """An account that needs to patch and delete nodes and to record Events."""
    reviews = [
        AccessReview(PolicyRule(resource, (verb,), ""), verb, "", verb not in denied)
        for resource, verb in (("nodes", "patch"), ("nodes", "delete"), ("events", "create"))
    ]
    return AccountCandidate(ServiceAccount(name), reviews, problem)


@pytest.mark.parametrize(
    ("candidates", "chosen"),
    [
        ([candidate("ours"), candidate("upstreams")], "ours"),
        ([candidate("ours", problem="there is none"), candidate("upstreams")], "upstreams"),
        ([candidate("ours", "patch"), candidate("upstreams")], "upstreams"),
        ([candidate("ours", "patch"), candidate("upstreams", "delete")], "ours"),
        ([candidate("ours", "patch", "delete"), candidate("upstreams", "create")], "upstreams"),
        ([candidate("ours", "patch", "delete"), candidate("upstreams", problem="403")], None),
    ],
)
def test_a_worker_acts_as_the_first_who_lacks_least(
    candidates: list[AccountCandidate], chosen: str | None
) -> None:
    found = best(candidates)
    assert (found and found.account and found.account.name) == chosen


def test_no_one_is_a_failure_unless_no_one_asked_for_it_and_who_is_hidden_may_be_no_one() -> None:
    settings = Settings(cloud_provider="simulated", use_service_account_credentials=True)
    candidates = {
        "node": [candidate("a", problem="no")],
        "volume_label": [candidate("b", problem="no")],
        "route": [replace(candidate("c"), is_hidden=True)],
        "service": [candidate("d")],
    }
    found = evaluate_candidates(settings, candidates)
    assert [finding.state for finding in found] == [
        CheckState.FAILED,
        CheckState.WARNING,
        CheckState.NOT_CHECKED,
        CheckState.OK,
    ]
