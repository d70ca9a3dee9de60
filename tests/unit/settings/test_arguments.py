"""How the words of a command line are read: upstream's rules."""

import pytest

from ccm.settings import CertKey, read_arguments
from tests.support.rows import row
from tests.unit.settings.writing import faults, settings

A_PAIR, NAMED_PAIR = CertKey("a.crt", "a.key"), CertKey("b.crt", "b.key", ("*.b.c", "b.c"))
WELL_KNOWN = ("/healthz", "/readyz", "/livez")
BOOLEANS = "--allocate-node-cidrs --leader-elect=false --profiling=F"
OLD_NAMES = "service-lb-controller,-service,route,-cloud-node-lifecycle-controller"
FULL_NAMES = (
    "service-lb-controller",
    "-service-lb-controller",
    "node-route-controller",
    "-cloud-node-lifecycle-controller",
)


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        ("--node-workers=3", "node_workers", 3),
        ("--node-workers 3", "node_workers", 3),
        ("--node_workers=3", "node_workers", 3),
        ("--node_workers 3", "node_workers", 3),
        ("--node-workers=1 --node-workers=3", "node_workers", 3),
        ("-v=4", "v", 4),
        ("-v4", "v", 4),
        ("-v 4", "v", 4),
        ("--v=4", "v", 4),
        ("--v 4", "v", 4),
        # A value may look like a flag.
        ("--controllers -service", "controllers", ("-service-lb-controller",)),
        ("--cluster-name --odd", "cluster_name", "--odd"),
        # A boolean stands alone, or takes its value after the sign.
        (BOOLEANS, "allocate_node_cidrs", True),
        (BOOLEANS, "leader_elect", False),
        (BOOLEANS, "profiling", False),
        # Lists and mappings are repeated; of a name in a mapping the last value counts.
        (
            "--controllers=route,-service --controllers=cloud-node",
            "controllers",
            ("node-route-controller", "-service-lb-controller", "cloud-node-controller"),
        ),
        (
            "--cloud-rate=read=5,write=1 --cloud-rate=read=7",
            "cloud_rate",
            {"read": 7.0, "write": 1.0},
        ),
        (
            "--tls-sni-cert-key=a.crt,a.key --tls-sni-cert-key=b.crt,b.key:*.b.c,b.c",
            "tls_sni_cert_key",
            (A_PAIR, NAMED_PAIR),
        ),
        pytest.param(
            "--authorization-always-allow-paths=",
            "authorization_always_allow_paths",
            (),
            id="OP2-emptied",
        ),
        pytest.param("", "authorization_always_allow_paths", WELL_KNOWN, id="OP2-default"),
        pytest.param(f"--controllers={OLD_NAMES}", "controllers", FULL_NAMES, id="OP6"),
    ],
)
def test_words_become_a_value(words: str, field: str, value: object) -> None:
    assert getattr(settings(*words.split()), field) == value


def test_a_boolean_takes_no_value_from_the_next_word() -> None:
    found = faults("--leader-elect", "false")
    assert found == {"'false'": "is not a flag; a value is joined to its flag by '=', as in --v=4"}


@pytest.mark.parametrize(
    ("word", "field", "reported"),
    [
        ("--node-wrokers=2", "--node-wrokers", "is not a known flag; did you mean --node-workers?"),
        ("--zzz", "--zzz", "is not a known flag; 'ccm-supervisor start --help' lists all flags"),
        ("-x", "-x", "is not a known flag"),
        ("-cloud-config=x", "-cloud-config", "did you mean --cloud-config?"),
        ("stray", "'stray'", "is not a flag"),
        ("--", "'--'", "is not a flag"),
        ("-", "'-'", "is not a flag"),
        ("--node-workers", "--node-workers", "has no value; write --node-workers=N"),
        ("-v", "--v", "has no value; write --v=N"),
        ("--version=soon", "--version", "'soon' is not known; write --version or --version=raw"),
    ],
)
def test_a_word_that_is_no_flag_is_reported(word: str, field: str, reported: str) -> None:
    found = faults(word)
    assert list(found) == [field]
    assert reported in found[field]


def test_the_value_of_an_unknown_flag_is_not_reported_as_well() -> None:
    assert list(faults("--zzz", "value", "--v=1", "--yyy", "--v=2")) == ["--zzz", "--yyy"]


@pytest.mark.parametrize(
    ("words", "version"),
    [
        ([], "false"),
        (["--version"], "true"),
        (["--version=true"], "true"),
        (["--version=raw"], "raw"),
        (["--version=v1.31.0-x"], "v1.31.0-x"),
    ],
)
def test_the_version_is_requested(words: list[str], version: str) -> None:
    line = read_arguments(words)
    assert (line.version, line.faults) == (version, [])


@row("OP3")
def test_flags_are_stored_as_they_are_given() -> None:
    given: dict[str, tuple[str, object]] = {
        "leader_elect": ("false", False),
        "leader_elect_lease_duration": ("100s", 100.0),
        "leader_elect_renew_deadline": ("90s", 90.0),
        "leader_elect_retry_period": ("15s", 15.0),
        "leader_elect_resource_lock": ("leases", "leases"),
        "leader_elect_resource_name": ("test", "test"),
        "leader_elect_resource_namespace": ("default", "default"),
        "kube_api_content_type": ("application/json", "application/json"),
        "kube_api_qps": ("50.0", 50.0),
        "kube_api_burst": ("100", 100),
        "min_resync_period": ("100m", 6000.0),
        "controller_start_interval": ("2m", 120.0),
        "bind_address": ("192.168.4.21", "192.168.4.21"),
        "secure_port": ("10001", 10001),
        "cert_dir": ("/a/b/c", "/a/b/c"),
        "webhook_tls_cert_file": ("/w.crt", "/w.crt"),
        "webhook_tls_private_key_file": ("/w.key", "/w.key"),
        "webhook_tls_sni_cert_key": ("a.crt,a.key:a.b", (CertKey("a.crt", "a.key", ("a.b",)),)),
    }
    made = settings(*(f"--{name}={text}" for name, (text, _) in given.items()))
    assert {name: getattr(made, name) for name in given} == {
        name: value for name, (_, value) in given.items()
    }


@pytest.mark.parametrize(
    "text", [pytest.param("-5", id="OP7-negative"), pytest.param("0", id="OP7-none")]
)
def test_no_node_syncs_are_an_error(text: str) -> None:
    found = faults(f"--concurrent-node-syncs={text}")
    assert "must be a positive number" in found["--concurrent-node-syncs"]


@pytest.mark.parametrize(
    "updates", [pytest.param("0", id="OP8-none"), pytest.param("5", id="OP8-some")]
)
def test_any_number_of_status_updates_is_valid(updates: str) -> None:
    words = ("--concurrent-node-syncs=5", f"--concurrent-node-status-updates={updates}")
    assert settings(*words).concurrent_node_status_updates == int(updates)
    assert faults("--concurrent-node-status-updates=-1")
