"""Flags: their texts, their checks, and that all faults are told together."""

import os

import pytest

from ccm.directories import default_runtime_dir
from ccm.settings import Flag, Settings, flags
from ccm.settings.reading import validate
from tests.unit.settings.writing import faults, settings


@pytest.mark.parametrize("flag", [pytest.param(flag, id=flag.name) for flag in flags()])
def test_a_default_reads_back_from_how_it_is_shown(flag: Flag) -> None:
    default = getattr(Settings(), flag.field)
    assert flag.syntax.parse(flag.syntax.format(default)) == default == flag.default


def test_the_defaults_need_only_a_cloud() -> None:
    assert settings() == Settings(cloud_provider="simulated")
    assert [fault.field for fault in validate(Settings())] == ["--cloud-provider"]


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
        ("tags", "a=1", {"a": "1"}),
        ("tags", "a=1,b=x=y,c=", {"a": "1", "b": "x=y", "c": ""}),
        ("tags", "a=1,2", {"a": "1,2"}),
        ("tags", '"a=1,2",b=Two', {"a": "1,2", "b": "Two"}),
        ("tags", "", {}),
    ],
)
def test_a_text_becomes_a_value(name: str, text: str, expected: object) -> None:
    assert getattr(settings(f"--{name}={text}"), name) == expected


@pytest.mark.parametrize("value", ["", "b", "b,c", 'say "b"', '"b"', "b=c", ",", "ü b"])
@pytest.mark.parametrize("more", [{}, {"other": "1"}])
def test_tags_read_back_from_how_they_are_shown(value: str, more: dict[str, str]) -> None:
    shown = {"a": value, **more}
    (flag,) = (flag for flag in flags() if flag.name == "tags")
    assert settings(f"--tags={flag.syntax.format(shown)}").tags == shown


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
        ("tags", "a", "is not a list of keys and values"),
        ("tags", "a=1,b,c=2", "is not a list of keys and values"),
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
        ("node_workers", "a|b", "'a|b' is not a whole number; write a number like 10"),
        ("cloud_rate", "a|b=0", "'a|b=0' has no rate above 0 for 'a|b'; write class=calls-per"),
        ("controllers", "a|b", '"a|b" is not in the list of known controllers; choose from: *, '),
        ("logging_format", "|", "'|' is not known; choose one of text, json"),
        ("v", "9…", "9' is not a "),
        ("vmodule", "x=9…", "9' is not a "),
        ("worker_memory_limit", "9…", "9' is not a "),
        ("kube_api_qps", "9…", "9' is not a "),
        ("node_deletion_limit", "9…", "9' is not a "),
    ],
)
def test_an_invalid_value_is_reported_with_its_flag(name: str, text: str, complaint: str) -> None:
    written = text.replace("…", "9" * 5000)
    [(flag, reported)] = faults(f"--{name}={written}").items()
    assert flag == f"--{name.replace('_', '-')}"
    assert complaint in reported


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
        f"--leader-elect-lease-duration={duration}",
        f"--leader-elect-renew-deadline={deadline}",
        f"--leader-elect-retry-period={retry}",
    )
    assert set(found) == {f"--leader-elect-{name}" for name in broken}


def test_without_leader_election_its_times_do_not_matter() -> None:
    assert faults("--leader-elect=false", "--leader-elect-lease-duration=1s") == {}


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
    found = faults(
        "--leader-elect-renew-deadline=soon",
        "--leader-elect-retry-period=26s",
        "--leader-elect-lease-duration=137s",
    )
    assert list(found) == ["--leader-elect-renew-deadline"]
