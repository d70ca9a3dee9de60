"""Rules of Leases."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator

from ccm.sandbox.kubernetes.failures import Cause, Undecodable
from ccm.sandbox.kubernetes.objects import Object, section
from ccm.sandbox.kubernetes.rules.rule import Rules, wrong

# metav1.MicroTime: exactly six digits after the point.
MICRO_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}(Z|[+-]\d{2}:\d{2})", re.ASCII)


def _decode(lease: Object) -> None:
    spec = section(lease, "spec")
    for name in ("acquireTime", "renewTime"):
        moment = spec.get(name)
        if moment is not None and not (isinstance(moment, str) and MICRO_TIME.fullmatch(moment)):
            raise Undecodable(
                f'LeaseSpec.spec.{name}: parsing time "{moment}" as'
                ' "2006-01-02T15:04:05.000000Z07:00": cannot parse'
            )
    for name in ("leaseDurationSeconds", "leaseTransitions"):
        if type(spec.get(name, 0)) is not int:
            raise Undecodable(f"LeaseSpec.spec.{name} must be an integer")
    if not isinstance(spec.get("holderIdentity", ""), str):
        raise Undecodable("LeaseSpec.spec.holderIdentity must be a string")


def _default(lease: Object) -> None:
    """Bring times to UTC, as the real server's encoder does."""
    spec = section(lease, "spec")
    for name in ("acquireTime", "renewTime"):
        if name in spec and not spec[name].endswith("Z"):
            moment = datetime.datetime.fromisoformat(spec[name]).astimezone(datetime.UTC)
            spec[name] = moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _validate(lease: Object, old: Object | None) -> Iterator[Cause]:
    spec = lease["spec"]
    if spec.get("leaseDurationSeconds", 1) <= 0:
        value = spec["leaseDurationSeconds"]
        yield wrong("spec.leaseDurationSeconds", value, "must be greater than 0")
    if spec.get("leaseTransitions", 0) < 0:
        value = spec["leaseTransitions"]
        yield wrong("spec.leaseTransitions", value, "must be greater than or equal to 0")


LEASE_RULES = Rules(_decode, _default, validate=_validate)
