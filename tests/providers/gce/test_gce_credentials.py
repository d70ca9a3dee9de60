"""Tokens: of a key file, of the metadata server, of another identity; renewed, refused."""

import json
from pathlib import Path
from typing import Any, cast

import pytest

from ccm.errors import CloudError, Unauthenticated
from ccm.redaction import safe_text
from tests.labs.gce.server import EMAIL, Gce
from tests.providers.gce.conftest import Start

LIBRARY = "token-url = nil"


async def test_a_key_file_signs_for_a_token(gce: Gce, start: Start, key_file: Path) -> None:
    """GC18, GC19: its signature is checked, a 401 makes a new one, and the file is read again."""
    key_file.write_text(json.dumps(gce.account()))
    gce.cloud.add_instance("one")
    cloud = await start(LIBRARY)
    await cloud.known("one")
    gce.tokens.clear()
    key_file.write_text(json.dumps(gce.account(private_key_id="next")))
    await cloud.known("one")
    listed = "instances.aggregatedList"
    assert cloud.operations == ["GetToken", listed, listed, "GetToken", listed]
    assert [one["path"] for one in gce.token_requests] == ["/token"] * 2


async def test_a_refused_account_is_named_and_not_shown_again(
    gce: Gce, start: Start, key_file: Path
) -> None:
    """GC20."""
    key_file.write_text(json.dumps(gce.account()))
    gce.account_error = {"error": "invalid_grant", "error_description": "account not found"}
    cloud = await start(LIBRARY)
    for _ in range(3):
        with pytest.raises(Unauthenticated, match=f"{EMAIL}.*account not found"):
            await cloud.describe_one("one")
    assert len(gce.token_requests) == 1


async def test_the_metadata_server_gives_tokens_and_the_place(gce: Gce, start: Start) -> None:
    """GC21."""
    gce.cloud.add_instance("one")
    cloud = await start(LIBRARY, "project-id = ", "local-zone = ", "network-name = ")
    assert (await cloud.known("one")).zone == "europe-west1-b"
    assert not gce.token_requests


async def test_a_word_that_is_given_as_a_token_is_redacted_nowhere(
    gce: Gce, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keys of heartbeats are words."""
    token = {"access_token": "cloud_outage", "expires_in": 3600}
    monkeypatch.setattr(gce, "new_token", lambda: token)
    cloud = await start(LIBRARY)
    with pytest.raises(CloudError, match="the answer has no token"):
        await cloud.describe_one("one")
    assert safe_text("cloud_outage") == "cloud_outage"


async def test_outside_of_google_the_place_has_to_be_given(gce: Gce, start: Start) -> None:
    gce.has_metadata = False
    cloud = await start("project-id = ")
    with pytest.raises(CloudError, match="give project-id"):
        await cloud.describe_one("one")


@pytest.mark.parametrize("form", [{}, {"type": "json", "subject_token_field_name": "token"}])
@pytest.mark.parametrize("impersonates", [False, True])
async def test_a_token_of_the_cluster_is_exchanged(
    gce: Gce, start: Start, key_file: Path, form: dict[str, str], impersonates: bool
) -> None:
    """Workload identity federation, and what it may lead to: a service account."""
    token = key_file.with_name("token")
    token.write_text('{"token": "of-the-cluster"}' if form else "of-the-cluster\n")
    account: dict[str, Any] = {
        "type": "external_account",
        "audience": "//iam.googleapis.com/pool",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": f"{gce.url}/token/exchange",
        "credential_source": {"file": str(token), "format": form},
    }
    if impersonates:
        account["service_account_impersonation_url"] = f"{gce.url}/token/impersonate"
    key_file.write_text(json.dumps(account))
    gce.cloud.add_instance("one")
    cloud = await start(LIBRARY)
    await cloud.known("one")
    exchange, *more = gce.token_requests
    assert exchange["subject_token"] == "of-the-cluster"
    assert [one["path"] for one in more] == ["/token/impersonate"] * impersonates


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "is not JSON"),
        ('{"type": "authorized_user"}', "'authorized_user'"),
        ('{"type": "service_account"}', "lacks private_key"),
        ('{"type": "service_account", "private_key": "x"}', "not RSA in PEM"),
        ('{"type": "external_account"}', "credential_source.file"),
    ],
)
async def test_what_is_wrong_with_the_file_is_said_without_its_path(
    gce: Gce, start: Start, key_file: Path, content: str, problem: str
) -> None:
    key_file.write_text(content)
    cloud = await start(LIBRARY)
    with pytest.raises(Unauthenticated, match=problem) as found:
        await cloud.describe_one("one")
    assert str(key_file) not in str(found.value)
    assert str(key_file) in found.value.source


@pytest.mark.parametrize("odd", ["", 5, "no project", "a/../b", None])
@pytest.mark.parametrize(
    "path",
    ["project/project-id", "instance/zone", "instance/network-interfaces/0/network"],
)
async def test_a_place_that_is_none_is_asked_for_again(
    gce: Gce, start: Start, odd: object, path: str
) -> None:
    """Else nothing would be found until the process ends."""
    gce.cloud.add_instance("one")
    known = gce.metadata
    cast(Any, gce).metadata = lambda asked: odd if asked == path else known(asked)
    cloud = await start(LIBRARY, "project-id = ", "local-zone = ", "network-name = ")
    try:
        with pytest.raises(CloudError):
            await cloud.describe_one("one")
    finally:
        cast(Any, gce).metadata = known
    assert (await cloud.known("one")).zone == "europe-west1-b"


async def test_one_answer_about_another_machine_is_not_kept(gce: Gce, start: Start) -> None:
    """By another's zone all load balancers were made again in its region, and stayed there."""
    gce.cloud.add_instance("one")
    known, wrong = gce.metadata, ["projects/1/zones/us-central1-a"]

    def once(path: str) -> object:
        return wrong.pop() if path == "instance/zone" and wrong else known(path)

    cast(Any, gce).metadata = once
    cloud = await start(LIBRARY, "project-id = ", "local-zone = ", "network-name = ")
    try:
        with pytest.raises(CloudError, match="two answers differ"):
            await cloud.describe_one("one")
        assert (await cloud.known("one")).zone == "europe-west1-b"
    finally:
        cast(Any, gce).metadata = known
