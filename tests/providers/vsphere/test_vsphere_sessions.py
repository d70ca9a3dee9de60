"""Sessions, credentials and certificates of a vCenter."""

import base64
import hashlib
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ccm.errors import CloudError, Denied
from ccm.model.cloud import Gone
from ccm.model.objects import Node
from tests.labs.vsphere.lab import LABELS, Lab
from tests.providers.vsphere.conftest import Started, node_of, node_with
from tests.providers.vsphere.test_vsphere_gone import ABSENT

LIST = "RetrievePropertiesEx"
TAGS = "POST /rest/com/vmware/cis/session", "DELETE /rest/com/vmware/cis/session"


async def test_a_session_that_ended_is_opened_again(lab: Lab, tagged: Started) -> None:
    """VS24: nobody sees an error, and the read is made whole."""
    (made,) = lab.create("node-1")
    before = await tagged.known(node_of(made))
    lab.end_sessions()
    lab.forget_calls()
    assert await tagged.known(node_of(made)) == before
    calls = lab.calls()
    assert (calls["Login"], calls[LIST], calls["RetrieveServiceContent"]) == (1, 2, 1)


async def test_a_session_of_tags_that_ended_is_opened_again(lab: Lab, tagged: Started) -> None:
    """VS24."""
    (made,) = lab.create("node-1")
    before = await tagged.known(node_of(made))
    lab.fail("tag-association", status=401, count=1)
    assert await tagged.known(node_of(made)) == before
    assert lab.calls()["POST /rest/com/vmware/cis/session"] == 2


async def test_a_session_that_ends_between_pages_leaves_no_half_list(
    lab: Lab, cloud: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """VS25: the second page faults, as the first of a new session would be another list."""
    monkeypatch.setattr("ccm.providers.vsphere.inventory.PAGE", 7)
    machines = lab.create("node-1", "node-2")
    lab.fail_in_soap("ContinueRetrievePropertiesEx", 1)
    for made in machines:
        await cloud.known(node_of(made))
    assert lab.calls()["Login"] == 2
    assert isinstance(await cloud.describe_one(ABSENT), Gone)


async def test_a_collector_or_a_view_that_is_gone_is_no_machine(lab: Lab, cloud: Started) -> None:
    """VS26: it is a session that ended."""
    (made,) = lab.create("node-1")
    await cloud.known(node_of(made))
    lab.fail_in_soap(LIST, 5)
    await cloud.known(node_of(made))
    assert lab.calls()["Login"] == 2
    lab.fail(LIST, status=500, text=not_found("ContainerView", "session[1]2"), count=1)
    await cloud.known(node_of(made))
    assert lab.calls()["Login"] == 3


def not_found(kind: str, moid: str) -> str:
    """The fault of a managed object that does not exist, as vCenter words it."""
    name = "ManagedObjectNotFound"
    obj = f'<obj type="{kind}">{moid}</obj>'
    fault = f'<{name}Fault xmlns="urn:vim25" xsi:type="{name}">{obj}</{name}Fault>'
    reported = f"<faultcode>ServerFaultCode</faultcode><faultstring>no {moid}</faultstring>"
    detail = f"<detail>{fault}</detail>"
    soap = 'xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"'
    xsi = 'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'
    fault = f"<s:Fault>{reported}{detail}</s:Fault>"
    return f'<?xml version="1.0"?><s:Envelope {soap} {xsi}><s:Body>{fault}</s:Body></s:Envelope>'


async def test_a_machine_that_went_while_all_were_read_is_no_proof(
    lab: Lab, cloud: Started
) -> None:
    """VS27: everything is read again, in the same session; a second time it is an error."""
    (made,) = lab.create("node-1")
    await cloud.known(node_of(made))
    gone = not_found("VirtualMachine", "vm-99999")
    lab.fail(LIST, status=500, text=gone, count=1)
    await cloud.known(node_of(made))
    assert (lab.calls()["Login"], lab.calls()[LIST]) == (1, 3)
    lab.fail(LIST, status=500, text=gone)
    assert not isinstance(await result_of(cloud, node_of(made)), Gone)


async def result_of(cloud: Started, asked: Node) -> object:
    try:
        return await cloud.describe_one(asked)
    except CloudError as error:
        return error


async def test_sessions_are_ended(lab: Lab) -> None:
    started = await Started(lab.config(LABELS)).start()
    (made,) = lab.create("node-1")
    await started.known(node_of(made))
    await started.close()
    assert lab.calls()["Logout"] == 1
    assert lab.calls()["DELETE /rest/com/vmware/cis/session"] == 1


@pytest.mark.parametrize(
    ("spoil", "opened", "ended"),
    [
        (lambda lab: lab.fail("tag-association", status=401), *TAGS),
        (lambda lab: lab.fail_in_soap("CreateContainerView", 2, 3), "Login", "Logout"),
        (lambda lab: lab.fail_in_soap(LIST, 5, 3), "Login", "Logout"),
    ],
    ids=["tags refused", "no view", "view gone"],
)
async def test_a_session_that_is_given_up_is_ended(
    lab: Lab, spoil: Callable[[Lab], None], opened: str, ended: str
) -> None:
    """vCenter has few sessions, and keeps each for half an hour."""
    started = await Started(lab.config(LABELS)).start()
    (made,) = lab.create("node-1")
    spoil(lab)
    for _ in range(3):
        await result_of(started, node_of(made))
    await started.close()
    calls = lab.calls()
    assert calls[opened] > 1
    assert calls[ended] == calls[opened]


async def test_a_wrong_password_is_not_tried_again_at_once(lab: Lab) -> None:
    """VS28: however many ask; the account would be locked for all who use it."""
    cloud = await Started(lab.config(password="wrong")).start()
    for _ in range(5):
        with pytest.raises(Denied, match=r"lab: Login: vim\.fault\.InvalidLogin"):
            await cloud.describe(node_with("node-1"), node_with("node-2"))
    assert lab.calls()["Login"] == 1
    cloud._apis[0]._login._pause._until = 0.0
    with pytest.raises(Denied, match="InvalidLogin"):
        await cloud.describe(node_with("node-1"))
    with pytest.raises(Denied, match=r"refused since .*Z; correct the login in the config"):
        await cloud.describe(node_with("node-1"))
    assert lab.calls()["Login"] == 2
    await cloud.close()


async def test_a_password_may_change_in_its_directory(lab: Lab, tmp_path: Path) -> None:
    """VS29: with a session, nobody notices; without one, the new one counts at once."""
    (made,) = lab.create("node-1")
    files = [tmp_path / f"{lab.server}.{key}" for key in ("username", "password")]
    files[0].write_text(f"{lab.user}\n")
    files[1].write_text("wrong\n")
    cloud = await Started(in_directory(lab, tmp_path)).start()
    with pytest.raises(Denied, match="InvalidLogin"):
        await cloud.describe_one(node_of(made))
    files[1].write_text(f"{lab.password}\n")
    await cloud.known(node_of(made))
    files[1].unlink()
    await cloud.known(node_of(made))
    lab.end_sessions()
    with pytest.raises(Denied, match=rf"has no {lab.server}.username and {lab.server}.password"):
        await cloud.describe_one(node_of(made))


def in_directory(lab: Lab, directory: Path) -> str:
    text = lab.config(user=None, password=None)
    return f"{text}global:\n  secretsDirectory: {directory}\n"


async def test_a_password_may_be_in_a_secret(lab: Lab) -> None:
    """VS29: it is read at each login and when that was refused, and at no other time."""
    (made,) = lab.create("node-1")
    stored = {f"{lab.server}.username": lab.user, f"{lab.server}.password": "wrong"}
    reads = list[tuple[str, str]]()

    async def read(namespace: str, name: str) -> Mapping[str, str]:
        reads.append((namespace, name))
        return dict(stored)

    secret = {"secretName": "vsphere", "secretNamespace": "kube-system"}
    config = lab.config(None, user=None, password=None, **secret)
    cloud = await Started(config, read).start()
    with pytest.raises(Denied, match="InvalidLogin"):
        await cloud.describe_one(node_of(made))
    stored[f"{lab.server}.password"] = lab.password
    for _ in range(2):
        await cloud.known(node_of(made))
    assert reads == [("kube-system", "vsphere")] * 3
    await cloud.close()
    alone = await Started(config).start()
    with pytest.raises(Denied, match="Secret kube-system/vsphere cannot be read from here"):
        await alone.describe_one(node_of(made))


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("vc-session-manager-url", "https://x", "shared sessions"),
        ("username", "-----BEGIN CERTIFICATE-----", "a login by certificate"),
    ],
)
async def test_other_ways_to_log_in_are_reported(
    lab: Lab, tmp_path: Path, key: str, value: str, words: str
) -> None:
    for name, content in {"username": "u", "password": "p", key: value}.items():
        (tmp_path / f"{lab.server}.{name}").write_text(content)
    cloud = await Started(in_directory(lab, tmp_path)).start()
    with pytest.raises(Denied, match=f"{words}.* not supported"):
        await cloud.describe_one(ABSENT)


async def test_a_wrong_authority_is_refused_before_anything_is_sent(lab: Lab, other: Lab) -> None:
    """VS30: on loopback, too, where pyVmomi's own connections believe everybody."""
    for given in ({"caFile": other.ca_file}, {"caFile": None}):
        cloud = await Started(lab.config(LABELS, **given)).start()
        with pytest.raises(
            CloudError, match=r"certificate is not trusted: .*; give its author.* as caFile"
        ):
            await cloud.describe_one(ABSENT)
        await cloud.close()
    assert lab.calls() == {}


async def test_a_wrong_host_name_is_refused(lab: Lab) -> None:
    """VS30: 127.0.0.2 is the same server by another name; its authority is believed."""
    cloud = await Started(lab.config(server="127.0.0.2")).start()
    with pytest.raises(CloudError):
        await cloud.describe_one(ABSENT)
    await cloud.close()
    assert lab.calls() == {}


@pytest.mark.parametrize("algorithm", ["sha1", "sha256"])
async def test_a_thumbprint_is_enough(lab: Lab, other: Lab, algorithm: str) -> None:
    """VS30, VS31: and that of a certificate before is not; told is the one that it has now."""
    right, wrong = (thumbprint(one, algorithm) for one in (lab, other))
    cloud = await Started(lab.config(caFile=None, thumbprint=right)).start()
    (made,) = lab.create("node-1")
    await cloud.known(node_of(made))
    await cloud.close()
    lab.forget_calls()
    renewed = await Started(lab.config(thumbprint=wrong)).start()
    with pytest.raises(CloudError, match=f"has the thumbprint {right}, which is not the config"):
        await renewed.describe_one(node_of(made))
    await renewed.close()
    assert lab.calls() == {}


def thumbprint(lab: Lab, algorithm: str) -> str:
    der = ssl.PEM_cert_to_DER_cert(Path(lab.ca_file).read_text())
    found = hashlib.new(algorithm, der).hexdigest().upper()
    return ":".join(found[at : at + 2] for at in range(0, len(found), 2))


async def test_passwords_are_in_no_error(lab: Lab) -> None:
    cloud = await Started(lab.config(LABELS)).start()
    basic = base64.b64encode(f"{lab.user}:{lab.password}".encode()).decode()
    for fault in ({"status": 400}, {"status": 500, "text": "<x>"}, {"drop": True}):
        lab.fail(**fault)
        with pytest.raises(CloudError) as raised:
            await cloud.describe_one(ABSENT)
        reported = f"{raised.value!r} {raised.value.__cause__!r} {cloud._apis[0].vcenter!r}"
        assert lab.password not in reported
        assert basic not in reported
        lab.heal()
