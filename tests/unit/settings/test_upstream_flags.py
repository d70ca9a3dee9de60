"""Every flag of upstream's is one of ours, with its default unless we say otherwise."""

import re
from pathlib import Path

import pytest

from ccm.settings import Flag, Origin, flags
from ccm.settings.document import tables
from tests.support.rows import row

_UPSTREAM = """
cloud-provider= cloud-config= cluster-name=kubernetes cluster-cidr= allocate-node-cidrs=false
cidr-allocator-type=RangeAllocator configure-cloud-routes=true route-reconciliation-period=10s
node-monitor-period=5s node-status-update-frequency=5m0s use-service-account-credentials=false
allow-untagged-cloud=false external-cloud-volume-plugin= node-sync-period=0s
concurrent-node-syncs=1 concurrent-node-status-updates=0 concurrent-service-syncs=1
concurrent-node-lifecycle-syncs=1

kubeconfig= master= kube-api-qps=20 kube-api-burst=30
kube-api-content-type=application/vnd.kubernetes.protobuf min-resync-period=12h0m0s
controller-start-interval=0s controllers=* feature-gates= leader-elect=true
leader-elect-lease-duration=15s leader-elect-renew-deadline=10s leader-elect-retry-period=2s
leader-elect-resource-lock=leases leader-elect-resource-name=cloud-controller-manager
leader-elect-resource-namespace=kube-system enable-leader-migration=false
leader-migration-config= profiling=true contention-profiling=false

bind-address=0.0.0.0 secure-port=10258 cert-dir= tls-cert-file= tls-private-key-file=
tls-sni-cert-key= tls-cipher-suites= tls-curve-preferences= tls-min-version=
disable-http2-serving=false http2-max-streams-per-connection=0 permit-port-sharing=false
permit-address-sharing=false authentication-kubeconfig= authentication-skip-lookup=false
authentication-tolerate-lookup-failure=false authentication-token-webhook-cache-ttl=10s
client-ca-file= requestheader-client-ca-file= requestheader-username-headers=x-remote-user
requestheader-group-headers=x-remote-group requestheader-extra-headers-prefix=x-remote-extra-
requestheader-uid-headers= requestheader-allowed-names= authorization-kubeconfig=
authorization-always-allow-paths=/healthz,/readyz,/livez
authorization-webhook-cache-authorized-ttl=10s authorization-webhook-cache-unauthorized-ttl=10s

webhooks= webhook-bind-address=0.0.0.0 webhook-secure-port=10260 webhook-cert-dir=
webhook-tls-cert-file= webhook-tls-private-key-file= webhook-tls-sni-cert-key=
webhook-tls-cipher-suites= webhook-tls-curve-preferences= webhook-tls-min-version=
webhook-disable-http2-serving=false

v=0 vmodule= logging-format=text log-flush-frequency=5s log-text-split-stream=false
log-text-info-buffer-size=0 log-json-split-stream=false log-json-info-buffer-size=0

tags= resources= tagging-controller-rate-limit=0 tagging-controller-burst-limit=0
tagging-controller-concurrent-node-syncs=1 tagging-controller-enable-batching=false
"""
"""Upstream's flags and their defaults, as on its command line; the last are of AWS's alone."""

DEFAULTS = dict(word.split("=", 1) for word in _UPSTREAM.split())

DEPRECATED = {"allow-untagged-cloud", "node-sync-period"}

OUR_DEFAULTS = {
    "concurrent-node-syncs",
    "concurrent-service-syncs",
    "kube-api-burst",
    "kube-api-qps",
    "route-reconciliation-period",
    "tagging-controller-concurrent-node-syncs",
}
"""Where ours differ, on purpose."""

ROOT = Path(__file__).parents[3]
FLAGS = {flag.name: flag for flag in flags()}
UPSTREAM = [pytest.param(FLAGS[name], id=name) for name in DEFAULTS if name in FLAGS]


def test_no_flag_is_missing_and_none_is_said_to_be_upstream_that_is_not() -> None:
    assert {f.name for f in FLAGS.values() if f.origin is not Origin.OURS} == DEFAULTS.keys()


@pytest.mark.parametrize("flag", UPSTREAM)
@row("OP1")
def test_a_default_is_upstreams_or_says_what_upstreams_is(flag: Flag) -> None:
    theirs = flag.syntax.parse(DEFAULTS[flag.name])
    if flag.name in OUR_DEFAULTS:
        assert flag.default != theirs
        assert flag.upstream_default is not None
        assert flag.syntax.parse(flag.upstream_default) == theirs
    else:
        assert (flag.default, flag.upstream_default) == (theirs, None)


def test_what_upstream_deprecates_is_deprecated() -> None:
    assert {flag.name for flag in FLAGS.values() if flag.deprecated} == DEPRECATED


def _read_by_code() -> set[str]:
    """Names of settings that something outside the settings' own package reads."""
    code = [
        path.read_text()
        for folder in ("ccm", "workers")
        for path in (ROOT / folder).rglob("*.py")
        if "ccm/settings" not in str(path)
    ]
    return set(re.findall(r"settings\.(\w+)", "\n".join(code)))


READ_BY_SETTINGS = {"config", "enable_leader_migration", "leader_migration_config"}
ONE_VALUE_ONLY = {"leader_elect_resource_lock"}
ONLY_REPORTED = {"feature_gates"}


def test_a_flag_has_an_effect_unless_it_says_that_it_has_none() -> None:
    read = (_read_by_code() | READ_BY_SETTINGS | ONE_VALUE_ONLY) - ONLY_REPORTED
    idle = {flag.field for flag in FLAGS.values() if flag.origin is Origin.NO_EFFECT}
    assert {flag.field for flag in FLAGS.values()} - read == idle


def test_the_tables_of_the_page_about_flags_are_those_that_the_code_makes() -> None:
    _, begin, rest = (ROOT / "docs" / "flags.md").read_text().partition("## ")
    assert begin + rest == tables(), "run: make docs"
