"""Which proxy leads to a URL, and what is wrong with one."""

import os

import pytest

from ccm.errors import ConfigurationFault
from ccm.proxy import check_environment, proxy_for, read_proxy
from ccm.redaction import without_secrets

PROXIES = {"HTTPS_PROXY": "http://secure:3128", "HTTP_PROXY": "http://plain:3128"}
SECURE, PLAIN = PROXIES.values()

# URL, NO_PROXY, and the proxy that Go's programs use. tests/peers asks Go for each of them.
RULES = [
    ("https://cloud.test/v2", "", SECURE),
    ("http://cloud.test:8080", "", PLAIN),
    ("https://localhost:6443", "", ""),
    ("https://127.0.0.1:6443", "", ""),
    ("https://127.9.9.9", "", ""),
    ("https://[::1]:6443", "", ""),
    ("https://192.0.2.7:6443", "", SECURE),
    ("https://localhost.cloud.test", "", SECURE),
    ("https://cloud.test", "*", ""),
    ("https://cloud.test", "other.test, * ", ""),
    ("https://cloud.test", "cloud.test", ""),
    ("https://api.cloud.test", "cloud.test", ""),
    ("https://apicloud.test", "cloud.test", SECURE),
    ("https://cloud.test", ".cloud.test", SECURE),
    ("https://api.cloud.test", ".cloud.test", ""),
    ("https://cloud.test", "*.cloud.test", SECURE),
    ("https://api.cloud.test", "*.cloud.test", ""),
    ("https://api.cloud.test", "*cloud.test", SECURE),
    ("https://API.Cloud.test", " cloud.TEST ", ""),
    ("https://cloud.test", "cloud.test:443", ""),
    ("https://cloud.test:8443", "cloud.test:443", SECURE),
    ("https://api.cloud.test:8443", ".cloud.test:8443", ""),
    ("http://cloud.test", "cloud.test:80", ""),
    ("https://cloud.test", ",,x", SECURE),
    ("https://cloud.test", ":443", SECURE),
    ("https://192.0.2.7", "192.0.2.7", ""),
    ("https://192.0.2.7", "192.0.2.7:443", ""),
    ("https://192.0.2.7", "192.0.2.7:6443", SECURE),
    ("https://192.0.2.7:6443", "192.0.2.0/24", ""),
    ("https://192.0.3.7", "192.0.2.0/24", SECURE),
    ("https://192.0.2.7", "192.0.2.9/24", ""),
    ("https://192.0.2.7", "192.0.2.0/33", SECURE),
    ("https://192.0.2.7", "0.2.7", SECURE),
    ("https://[2001:db8::7]:6443", "2001:db8::/32", ""),
    ("https://[2001:db8::7]", "2001:db8::7", ""),
    ("https://[2001:db8::7]:6443", "[2001:db8::7]:6443", ""),
    ("https://[2001:db8::7]:6443", "[2001:db8::7]:443", SECURE),
    ("https://[2001:db8::7]", "2001:DB8:0::7", ""),
    ("https://10.96.0.1:443", "10.96.0.0/12,.svc,.cluster.local", ""),
    ("https://kubernetes.default.svc", "10.96.0.0/12,.svc,.cluster.local", ""),
]


@pytest.mark.parametrize(("url", "excluded", "proxy"), RULES)
def test_the_environment_names_the_proxy(url: str, excluded: str, proxy: str) -> None:
    found = proxy_for(url, {**PROXIES, "NO_PROXY": excluded})
    assert (found.address if found else "") == proxy


@pytest.mark.parametrize("url", ["http://169.254.169.254", "http://[fe80::1]"])
def test_the_metadata_of_this_machine_comes_through_no_proxy(url: str) -> None:
    """Go's programs say so by themselves: a proxy has its own metadata, or makes some up."""
    assert proxy_for(url, PROXIES) is None


def test_names_in_small_letters_are_read_where_capitals_say_nothing() -> None:
    url, small = "https://cloud.test", {"https_proxy": "small:1", "no_proxy": "cloud.test"}
    assert proxy_for(url, small) is None
    assert proxy_for("https://other.test", small) == read_proxy("http://small:1")
    capital = {**small, "HTTPS_PROXY": "http://capital:1", "NO_PROXY": "other.test"}
    assert proxy_for(url, capital) == read_proxy("http://capital:1")
    assert proxy_for(url, {"HTTPS_PROXY": "", "HTTP_PROXY": "http://plain"}) is None
    assert proxy_for("unix:///run/incus.socket", PROXIES) is None


@pytest.mark.parametrize(
    ("url", "address", "authorization"),
    [
        ("http://proxy", "http://proxy:80", ""),
        ("https://proxy", "https://proxy:443", ""),
        ("proxy:3128", "http://proxy:3128", ""),
        ("http://[2001:db8::1]:3128/", "http://[2001:db8::1]:3128", ""),
        ("http://us:p%40ss@proxy:3128", "http://proxy:3128", "Basic dXM6cEBzcw=="),
        ("http://us@proxy:3128", "http://proxy:3128", "Basic dXM6"),
    ],
)
def test_a_proxy_is_read_from_its_url(url: str, address: str, authorization: str) -> None:
    proxy = read_proxy(url)
    assert (proxy.address, proxy.authorization) == (address, authorization)
    assert "dXM6" not in repr(proxy)


def test_a_proxys_password_is_shown_by_no_one() -> None:
    """The proxy itself may repeat it, as a part of its refusal."""
    read_proxy("http://us:hid%40den@proxy")
    encoded = "dXM6aGlkQGRlbg=="
    assert without_secrets(f"407 {encoded}, hid@den") == "407 [redacted], [redacted]"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("socks5://us:secret@proxy:1080", "has the scheme 'socks5'"),
        ("ftp://proxy", "has the scheme 'ftp'"),
        ("http://us:secret@", "is not the URL of a proxy"),
        ("http://us:secret@proxy:x", "is not the URL of a proxy"),
        ("http://us:secret@pro\nxy", "is not the URL of a proxy"),
    ],
)
def test_what_names_no_proxy_is_a_fault_of_its_variable(url: str, why: str) -> None:
    with pytest.raises(ConfigurationFault, match=f"^http_proxy: {why}") as fault:
        check_environment({"http_proxy": url})
    assert "secret" not in str(fault.value)
    with pytest.raises(ValueError, match=f"HTTPS_PROXY {why}"):
        proxy_for("https://cloud.test", {"HTTPS_PROXY": url})


def test_an_environment_without_proxies_is_none() -> None:
    check_environment({"HTTPS_PROXY": "", "NO_PROXY": "x"})
    assert proxy_for("https://cloud.test", {}) is None
    assert not {"HTTPS_PROXY", "HTTP_PROXY"} & os.environ.keys(), "tests reach what they start"
