"""Which proxy leads to a URL, as Go's HTTP client says: the same environments through both."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccm.proxy import proxy_for
from tests.peers.config_readers import GoReaders
from tests.unit.test_proxy import PROXIES, RULES

HOSTS = [
    "localhost", "127.0.0.1", "[::1]", "10.1.2.3", "192.0.2.7", "[2001:db8::7]", "cloud.test",
    "api.cloud.test", "a.api.cloud.test", "xcloud.test", "test", "[::ffff:10.1.2.3]",
]  # fmt: skip
NAMED = [
    "*", "", " ", "cloud.test", ".cloud.test", "*.cloud.test", "*cloud.test", "test", ".test",
    "api.cloud.test:443", "CLOUD.test", "10.0.0.0/8", "10.1.2.3", "10.1.2.3:443", "10.1.2", ":443",
    "10.1.2.3/8", "2001:db8::/32", "[2001:db8::7]", "[2001:db8::7]:443", "2001:db8::7", "::1",
    "192.0.2.0/33", "0.0.0.0/0", "::/0", "cloud.test:", ".", "*.", "localhost", "http://cloud.test",
]  # fmt: skip
PORTS = ["", ":80", ":443", ":6443"]


def gos_answer(go: GoReaders, url: str, excluded: str) -> str:
    http, https = PROXIES["HTTP_PROXY"], PROXIES["HTTPS_PROXY"]
    proxies = {"HTTPProxy": http, "HTTPSProxy": https, "NoProxy": excluded}
    error, found = go.read("httpproxy", json.dumps({"URL": url, "Proxies": proxies}).encode())
    assert not error
    return str(found)


def our_answer(url: str, excluded: str) -> str:
    found = proxy_for(url, {**PROXIES, "NO_PROXY": excluded})
    return found.address if found else ""


@pytest.mark.parametrize(("url", "excluded", "proxy"), RULES)
def test_the_rules_of_the_unit_tests_are_gos(
    go: GoReaders, url: str, excluded: str, proxy: str
) -> None:
    assert gos_answer(go, url, excluded) == proxy


@given(
    scheme=st.sampled_from(["http", "https"]),
    host=st.sampled_from(HOSTS),
    port=st.sampled_from(PORTS),
    excluded=st.lists(st.sampled_from(NAMED), max_size=3).map(",".join),
)
@settings(max_examples=500)
def test_any_url_and_list_have_the_same_proxy(
    go: GoReaders, scheme: str, host: str, port: str, excluded: str
) -> None:
    url = f"{scheme}://{host}{port}/"
    assert our_answer(url, excluded) == gos_answer(go, url, excluded)
