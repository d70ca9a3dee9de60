"""What of a kubeconfig becomes our access to the API server."""

import base64
import json
import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest

from ccm import limited_process
from ccm.directories import make_private
from ccm.errors import ConfigurationFault, NoCredentials
from ccm.kube.config import load
from ccm.model.objects import Json
from tests.support.deadlines import within
from tests.support.pki import Authority
from tests.support.running import wait_for
from tests.support.waiting import until

URL = "https://api.example.com:6443"


def written(path: Path, cluster: Json, user: Json) -> str:
    """A kubeconfig with this cluster and user."""
    body = {
        "current-context": "here",
        "clusters": [{"name": "here", "cluster": {"server": URL, **cluster}}],
        "users": [{"name": "us", "user": user}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "us"}}],
    }
    file = path / "kubeconfig"
    file.write_text(json.dumps(body))
    return str(file)


async def test_a_token_and_the_name_in_the_servers_certificate(tmp_path: Path) -> None:
    cluster = {"tls-server-name": "kubernetes", "insecure-skip-tls-verify": True}
    access = await load(written(tmp_path, cluster, {"token": "secret"}))
    server = access.server
    assert (server.url, server.tls_name, server.is_verified) == (URL, "kubernetes", False)
    assert await access.bearer() == "secret"


async def test_a_token_file_counts_before_a_token_and_null_is_not_there(tmp_path: Path) -> None:
    """KC3, as the reference of a kubeconfig."""
    (tmp_path / "fresh").write_text("fresh")
    user = {"token": "stale", "tokenFile": "fresh", "client-key": None}
    access = await load(written(tmp_path, {"proxy-url": None}, user))
    assert await access.bearer() == "fresh"


async def test_values_are_texts_as_in_go(tmp_path: Path) -> None:
    """Of two keys the last counts, and no name is a date or a number."""
    file = Path(written(tmp_path, {"tls-server-name": "other"}, {"token": "secret"}))
    dated = file.read_text().replace('"here"', "2024-01-01")
    file.write_text(dated.replace("{", '{"current-context": "elsewhere", ', 1))
    assert (await load(str(file))).server.tls_name == "other"


async def test_certificates_are_files(tmp_path: Path) -> None:
    for name in ("ca", "us.crt", "us.key"):
        (tmp_path / name).touch()
    user = {"client-certificate": "us.crt", "client-key": "us.key"}  # beside the kubeconfig
    access = await load(written(tmp_path, {"certificate-authority": str(tmp_path / "ca")}, user))
    server = access.server
    files = [Path(file) for file in (server.ca_file, server.cert_file, server.key_file)]
    assert files == [tmp_path / name for name in ("ca", "us.crt", "us.key")]
    assert await access.bearer() == ""


async def test_the_master_flag_wins(tmp_path: Path) -> None:
    kubeconfig = written(tmp_path, {}, {"token": "secret"})
    access = await load(kubeconfig, "http://127.0.0.1:8080/")
    assert access.server.url == "http://127.0.0.1:8080"


@pytest.mark.parametrize("more", [{}, {"disable-compression": True}])
async def test_the_kubeconfigs_proxy_counts(more: Json, tmp_path: Path) -> None:
    """KC4: whether the file needs the package or not."""
    url, user = "http://us:secret@proxy:3128", {"token": "t"}
    access = await load(written(tmp_path, {"proxy-url": url, **more}, user))
    assert access.server.proxy == url
    assert "secret" not in repr(access)
    assert not (await load(written(tmp_path, {"proxy-url": ""}, user))).server.proxy


@pytest.mark.parametrize(
    ("cluster", "user", "what"),
    [
        ({"proxy-url": "socks5://us:secret@a"}, {}, "proxy-url in .* has the scheme 'socks5'"),
        ({}, {"username": "us", "password": "secret"}, "username and password in .* cannot be"),
        ({}, {"token": "secret", "as": "other"}, "as in .* is not supported"),
        ({}, {"token": "secret", "as-groups": ["other"]}, "as-groups in .* is not supported"),
    ],
)
async def test_what_we_cannot_do_is_reported_before_the_start(
    cluster: Json, user: Json, what: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationFault, match=f"--kubeconfig: {what}") as fault:
        await load(written(tmp_path, cluster, user))
    assert "secret" not in str(fault.value)


def test_files_and_tokens_are_read_without_the_package(tmp_path: Path) -> None:
    kubeconfig = written(tmp_path, {}, {"token": "secret"})
    code = f"""
import asyncio, sys
from ccm.kube.config import load
asyncio.run(load({kubeconfig!r}))
assert "kubernetes" not in sys.modules and "aiohttp" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


INLINE = base64.b64encode(b"a certificate").decode()


async def test_the_certificates_of_an_authority_may_be_inline(tmp_path: Path) -> None:
    cluster = {"certificate-authority-data": INLINE}
    access = await load(written(tmp_path, cluster, {"token": "secret"}))
    assert (access.server.ca_data, access.server.ca_file) == ("a certificate", "")


async def test_a_clients_inline_certificate_is_left_to_the_package(tmp_path: Path) -> None:
    user = {"client-certificate-data": INLINE, "client-key-data": INLINE}
    access = await load(written(tmp_path, {}, user))
    assert Path(access.server.cert_file).read_bytes() == b"a certificate"


async def test_inline_certificates_are_kept_where_no_one_tidies_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In /tmp they go after ten days, and no worker starts any more."""
    make_private(run := tmp_path / "run")
    monkeypatch.setenv("CCM_RUNTIME_DIR", str(run))
    inline = base64.b64encode(b"another certificate").decode()
    user = {"client-certificate-data": inline, "client-key-data": inline}
    access = await load(written(tmp_path, {}, user))
    assert Path(access.server.cert_file).parent == run


def test_inline_certificates_are_in_the_runtime_directory_that_the_flag_names(
    tmp_path: Path,
) -> None:
    """As in the systemd unit; until the end alone."""
    signed, run = Authority("ca").client("us"), tmp_path / "run"
    pair = {"client-certificate-data": signed.pem, "client-key-data": signed.key_pem}
    user = {key: base64.b64encode(value).decode() for key, value in pair.items()}
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = {"server": f"https://127.0.0.1:{silent.getsockname()[1]}"}
        flags = ("--cloud-provider=simulated", f"--kubeconfig={written(tmp_path, server, user)}")
        command = (sys.executable, "-m", "ccm.cli.main", "start", *flags, f"--runtime-dir={run}")
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            wait_for("the key is there", lambda: [*run.glob("*.key_file")])
            process.terminate()
    assert [*run.glob("*_file")] == []


@pytest.mark.parametrize(
    ("place", "cluster"),
    [("kubeconfig", {}), ("tokenFile", {}), ("tokenFile", {"disable-compression": True})],
)
async def test_a_pipe_keeps_no_one_waiting(tmp_path: Path, place: str, cluster: Json) -> None:
    """Whose loop waits renews no Lease, and answers no probe."""
    os.mkfifo(pipe := tmp_path / "pipe")
    writer = Thread(target=pipe.write_bytes, args=[b""], daemon=True)
    writer.start()  # who waits nevertheless gets something, and the test its end
    kubeconfig = written(tmp_path, cluster, {"tokenFile": str(pipe)})
    with pytest.raises(ConfigurationFault, match="not a regular file"):
        await load(str(pipe) if place == "kubeconfig" else kubeconfig)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    writer.join()  # which may not have come as far as the pipe before
    os.close(reader)


@pytest.mark.parametrize("odd", ['"\\UFFFFFFFF"', '"\\U00110000"'])
async def test_an_escape_that_is_no_character_is_a_fault(tmp_path: Path, odd: str) -> None:
    (file := tmp_path / "kubeconfig").write_text(f"current-context: {odd}")
    with pytest.raises(ConfigurationFault, match="is not usable"):
        await load(str(file))


@pytest.mark.parametrize(
    "user", [{"tokenFile": "missing"}, {"client-certificate": "missing", "client-key": "missing"}]
)
async def test_a_file_that_is_missing_is_reported(user: Json, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationFault, match="is not usable"):
        await load(written(tmp_path, {}, user))


async def test_a_plugin_that_never_ends_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time that credentials are read another one would stay, with what it has started."""
    monkeypatch.setattr(limited_process, "TIMEOUT", 0.5)
    begun = tmp_path / "begun"
    script = f"echo $$ > {begun}; head -c 1000000 /dev/zero >&2; sleep 60; true"
    api = "client.authentication.k8s.io/v1"
    plugin = {"apiVersion": api, "command": "sh", "args": ["-c", script]}
    with pytest.raises(NoCredentials):
        async with within(20.0):
            await load(written(tmp_path, {}, {"exec": plugin}))
    group = int(begun.read_text())

    def is_there() -> bool:  # until who inherits what it has started has seen its end
        with suppress(ProcessLookupError):
            os.killpg(group, 0)
            return True
        return False

    await until(lambda: not is_there(), "its end")
