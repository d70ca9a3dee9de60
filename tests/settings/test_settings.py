"""Flags: their texts, their checks, and that all faults are told together."""

import os

import pytest

from ccm.errors import ConfigurationFaults
from ccm.settings import Flag, Settings, check, default_runtime_dir, flags, parse

CLOUD = {"cloud_provider": "simulated"}


def faults(**texts: str) -> dict[str, str]:
    """Flag → what is wrong with it, for these flags and a cloud."""
    try:
        parse({**CLOUD, **texts})
    except ConfigurationFaults as found:
        return {fault.field: f"{fault.problem}; {fault.remedy}" for fault in found.faults}
    return {}


@pytest.mark.parametrize("flag", [pytest.param(flag, id=flag.name) for flag in flags()])
def test_a_default_reads_back_from_how_it_is_shown(flag: Flag) -> None:
    default = getattr(Settings(), flag.field)
    assert flag.kind.parse(flag.kind.show(default)) == default == flag.default


def test_the_defaults_need_only_a_cloud() -> None:
    assert parse(CLOUD) == Settings(cloud_provider="simulated")
    assert list(check(parse(CLOUD))) == []
    assert [fault.field for fault in check(Settings())] == ["--cloud-provider"]


def test_a_flag_that_is_not_given_keeps_its_default() -> None:
    assert parse({**CLOUD, "node_workers": None}).node_workers == 1


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("cloud_call_timeout", "1m30s", 90.0),
        ("leader_elect", "False", False),
        ("leader_elect", "t", True),
        ("leader_elect", "0", False),
        ("node_workers", "4", 4),
        ("kube_api_qps", "0.5", 0.5),
        ("cloud_rate", "read=5,write=0.5", {"read": 5.0, "write": 0.5}),
        ("cloud_rate", "", {}),
        ("logging_format", "json", "json"),
        ("bind_address", "", "0.0.0.0"),
        ("bind_address", "::1", "::1"),
        ("min_resync_period", "0", 0.0),
        ("worker_memory_limit", "2Mi", 2 << 20),
        ("worker_memory_limit", "2M", 2_000_000),
        ("vmodule", "loop=2,le*=3", {"loop": 2, "le*": 3}),
        ("feature_gates", "AllAlpha=true,AllBeta=f", {"AllAlpha": True, "AllBeta": False}),
        ("webhooks", "*", ("*",)),
        ("tls_curve_preferences", "29,23", (29, 23)),
        ("controllers", "", ()),
    ],
)
def test_a_text_becomes_a_value(name: str, text: str, expected: object) -> None:
    assert getattr(parse({**CLOUD, name: text}), name) == expected


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("cloud_call_timeout", "30", "is not a duration"),
        ("cloud_call_timeout", "0s", "must be longer than 0"),
        ("cloud_call_timeout", "-1s", "must be longer than 0"),
        ("leader_elect", "yes", "is neither true nor false"),
        ("node_workers", "0", "must be a positive number"),
        ("node_workers", "two", "is not a whole number"),
        ("node_workers", "1.5", "is not a whole number"),
        ("kube_api_qps", "many", "is not a number"),
        ("kube_api_qps", "-1", "cannot be negative"),
        ("kube_api_in_flight", "0", "must be a positive number"),
        ("concurrent_node_syncs", "-5", "must be a positive number"),
        ("kube_api_qps", "nan", "is not a number"),
        ("kube_api_qps", "inf", "is not a number"),
        ("cloud_rate", "read", "is not a list of rates"),
        ("cloud_rate", "read=fast", "is not a list of rates"),
        ("cloud_rate", "read=nan", "is not a list of rates"),
        ("cloud_rate", "read=inf", "is not a list of rates"),
        ("cloud_rate", "read=0", "has no rate above 0 for 'read'"),
        ("cloud_rate", "read=-1", "has no rate above 0 for 'read'"),
        ("cloud_rate", "=5", "has no rate above 0 for ''"),
        ("cloud_reserve", "1", "is not a share"),
        ("node_vanish_share", "0", "is not a share of nodes"),
        ("cluster_cidr", "10.0.0.0/16,10.1.0.0/16", "is not one network, or one of each IP family"),
        ("controllers", "*,foo", '"foo" is not in the list of known controllers'),
        ("webhooks", "a", '"a" is not in the list of known webhooks'),
        ("webhooks", "-b", '"b" is not in the list of known webhooks'),
        ("feature_gates", "Foo=true", "has an unknown gate 'Foo'; choose from: APIResponseCompr"),
        ("feature_gates", "AllAlpha=maybe", "is neither true nor false"),
        ("feature_gates", "AllAlpha", "is not a list of feature gates"),
        ("cluster_name", "", "cannot be empty"),
        ("leader_elect_resource_name", "", "cannot be empty"),
        ("leader_elect_resource_namespace", "", "cannot be empty"),
        ("secure_port", "70000", "is not a port"),
        ("secure_port", "-1", "is not a port"),
        ("webhook_secure_port", "10258", "is --secure-port as well"),
        ("bind_address", "localhost", "is not an IP address"),
        ("tls_min_version", "1.2", "choose one of VersionTLS10, VersionTLS11, VersionTLS12, V"),
        ("tls_sni_cert_key", "a.crt", "is not a pair of files"),
        ("tls_curve_preferences", "X25519", "is not a whole number"),
        ("tls_curve_preferences", "0", "is not a list of TLS curve numbers"),
        ("kube_api_content_type", "text/html", "choose one of application/vnd.kubernetes.protobuf"),
        ("vmodule", "loop", "is not a list of levels"),
        ("v", "-1", "cannot be negative"),
        ("node_monitor_period", "0", "must be longer than 0"),
        ("controller_start_interval", "-1s", "cannot be negative"),
        ("log_flush_frequency", "-1s", "must be longer than 0"),
        ("log_text_info_buffer_size", "big", "is not a size"),
        ("logging_format", "xml", "choose one of text, json"),
        ("leader_elect_resource_lock", "endpoints", "choose one of leases"),
        ("cloud_provider", "", "cannot be empty"),
    ],
)
def test_a_wrong_text_is_told_with_its_flag(name: str, text: str, complaint: str) -> None:
    found = faults(**{name: text})
    assert list(found) == [f"--{name.replace('_', '-')}"]
    assert complaint in found[f"--{name.replace('_', '-')}"]


def test_all_faults_are_told_at_once_and_each_once() -> None:
    found = faults(
        cloud_provider="",
        node_workers="0",
        cloud_call_timeout="soon",
        leader_elect="maybe",
        shutdown_timeout="0s",
        kube_api_burst="-1",
    )
    assert set(found) == {
        "--cloud-provider",
        "--node-workers",
        "--cloud-call-timeout",
        "--leader-elect",
        "--shutdown-timeout",
        "--kube-api-burst",
    }


def test_the_text_of_faults_is_one_line_each() -> None:
    with pytest.raises(ConfigurationFaults) as told:
        parse({"node_workers": "0", "leader_elect": "maybe"})
    assert len(str(told.value).splitlines()) == len(told.value.faults) == 3


@pytest.mark.parametrize(
    ("duration", "deadline", "retry", "broken"),
    [
        pytest.param("15s", "10s", "2s", set(), id="upstream"),
        pytest.param("137s", "107s", "26s", set(), id="openshift"),
        pytest.param("10s", "10s", "2s", {"lease-duration"}, id="the-lease-ends-with-the-deadline"),
        pytest.param("9s", "10s", "2s", {"lease-duration"}, id="the-lease-ends-before"),
        pytest.param("15s", "2s", "2s", {"renew-deadline"}, id="one-try-only"),
        pytest.param("15s", "2400ms", "2s", {"renew-deadline"}, id="jitter-takes-the-second-try"),
        pytest.param("15s", "2500ms", "2s", set(), id="just-enough"),
        pytest.param("15s", "10s", "0s", {"retry-period"}, id="no-pause"),
        pytest.param(
            "1s", "2s", "2s", {"lease-duration", "renew-deadline"}, id="both-are-told"
        ),
    ],
)  # fmt: skip
def test_the_times_of_leader_election_fit_each_other(
    duration: str, deadline: str, retry: str, broken: set[str]
) -> None:
    found = faults(
        leader_elect_lease_duration=duration,
        leader_elect_renew_deadline=deadline,
        leader_elect_retry_period=retry,
    )
    assert set(found) == {f"--leader-elect-{name}" for name in broken}


def test_without_leader_election_its_times_do_not_matter() -> None:
    assert faults(leader_elect="false", leader_elect_lease_duration="1s") == {}


@pytest.mark.parametrize(
    ("euid", "environment", "expected"),
    [
        (0, "/run/user/7", "/run/ccm-supervisor"),
        (7, "/run/user/7", "/run/user/7/ccm-supervisor"),
        (7, "", "/tmp/ccm-supervisor-7/ccm-supervisor"),
    ],
)
def test_sockets_live_where_their_user_may_write(
    monkeypatch: pytest.MonkeyPatch, euid: int, environment: str, expected: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: euid)
    monkeypatch.setenv("XDG_RUNTIME_DIR", environment)
    assert default_runtime_dir() == expected


def test_a_flag_that_is_not_understood_is_not_compared_with_others() -> None:
    texts = {
        "leader_elect_renew_deadline": "soon",
        "leader_elect_retry_period": "26s",
        "leader_elect_lease_duration": "137s",
    }
    with pytest.raises(ConfigurationFaults) as told:
        parse({**CLOUD, **texts})
    assert [fault.field for fault in told.value.faults] == ["--leader-elect-renew-deadline"]
