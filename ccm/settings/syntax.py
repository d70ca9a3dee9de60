"""How the value of a flag is written: from its text to the value, and back."""

import csv
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from io import StringIO
from ipaddress import ip_address, ip_network
from itertools import chain
from math import isfinite, nan
from typing import Any

from ccm.controllers import canonical
from ccm.durations import format_duration, parse_duration

_FEATURE_GATES = """
    APIResponseCompression APIServerIdentity APIServerTracing
    APIServerWebhookAuthenticationToken APIServingWithRoutine AggregatedDiscoveryRemoveBetaType
    AllAlpha AllBeta AllowParsingUserUIDFromCertAuth AllowUnsafeMalformedObjectDeletion
    AnonymousAuthConfigurableEndpoints AuthorizeWithSelectors BtreeWatchCache
    CBORServingAndStorage CloudControllerManagerWatchBasedRoutesReconciliation
    CloudControllerManagerWebhook CloudNodeAdditionalLabelsReconciliation ComponentFlagz
    ComponentStatusz ConcurrentWatchObjectDecode ConsistentListFromCache
    ConsistentListFromCacheSkipTimeoutFallback ConstrainedImpersonation ContextualLogging
    ControllerManagerReleaseLeaderElectionLockOnExit CoordinatedLeaderElection
    DeclarativeValidation DeclarativeValidationBeta DeclarativeValidationTakeover
    DetectCacheInconsistency EtcdRangeStream ExcludeAdmissionWebhookVirtualResources KMSv1
    ListFromCacheSnapshot LoggingAlphaOptions LoggingBetaOptions LoggingStableOptions
    ManifestBasedAdmissionControlConfig MutatingAdmissionPolicy NativeHistograms OpenAPIEnums
    RemoteRequestHeaderUID ResilientWatchCacheInitialization RetryGenerateName
    SeparateCacheWatchRPC ShardedListAndWatch SizeBasedListCostEstimate StorageVersionAPI
    StorageVersionHash StreamingCollectionEncodingToJSON StreamingCollectionEncodingToProtobuf
    StructuredAuthenticationConfiguration StructuredAuthenticationConfigurationEgressSelector
    StructuredAuthenticationConfigurationJWKSMetrics TokenRequestServiceAccountUIDValidation
    UnauthenticatedHTTP2DOSMitigation UnknownVersionInteroperabilityProxy
    WatchCacheInitializationPostStartHook WatchList WatchListCompression
    WebhookRoundTripLoadBalancing
"""

KNOWN_FEATURE_GATES = frozenset(_FEATURE_GATES.split())
"""Upstream's, of 1.36 and newer: none changes anything here, and a start logs any other."""


class InvalidValue(ValueError):
    """A value that cannot be used: `problem` says why, `remedy` what to write instead."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}; {remedy}")
        self.problem, self.remedy = problem, remedy


def _last(values: Sequence[Any]) -> Any:
    return values[-1]


def _chained(values: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(chain.from_iterable(values))


def _merged(values: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {key: value for part in values for key, value in part.items()}


@dataclass(frozen=True, slots=True)
class Syntax:
    """How a value is parsed and formatted, and what several values of one flag mean together.

    `parse` raises `InvalidValue`.
    """

    metavar: str
    parse: Callable[[str], Any]
    format: Callable[[Any], str] = str
    join: Callable[[Sequence[Any]], Any] = _last

    @property
    def is_repeatable(self) -> bool:
        """Whether a second value adds to the first one instead of replacing it."""
        return self.join is not _last

    @property
    def is_mapping(self) -> bool:
        return self.join is _merged


@dataclass(frozen=True, slots=True)
class CertKey:
    """A certificate and its key for clients that ask for one of `names` (empty: its own names)."""

    cert_file: str
    key_file: str
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        named = f":{','.join(self.names)}" if self.names else ""
        return f"{self.cert_file},{self.key_file}{named}"


def _where(
    parse: Callable[[str], Any], is_valid: Callable[[Any], object], problem: str, remedy: str
) -> Callable[[str], Any]:
    """`parse`, which refuses values that are not valid."""

    def parse_valid(text: str) -> Any:
        value = parse(text)
        if not is_valid(value):
            raise InvalidValue(problem, remedy)
        return value

    return parse_valid


def _duration(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError:
        raise InvalidValue("is not a duration", "write it like 10s, 5m or 1h30m") from None


def _boolean(text: str) -> bool:
    if text.lower() in {"true", "t", "1"}:
        return True
    if text.lower() in {"false", "f", "0"}:
        return False
    raise InvalidValue("is neither true nor false", "write true or false")


def _int(text: str) -> int:
    # int() would take 1_000 and digits of other scripts, too, and refuses thousands of digits.
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        raise InvalidValue("is not a whole number", "write a number like 10")
    return int(text)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = nan
    if not isfinite(value):
        raise InvalidValue("is not a number", "write a number like 20 or 0.5")
    return value


def _size(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,18})(Ki|Mi|Gi|k|M|G)?", text)
    if not match:
        raise InvalidValue("is not a size", "write bytes, or a number with Ki, Mi or Gi")
    units = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "k": 10**3, "M": 10**6, "G": 10**9}
    return int(match[1]) * units.get(match[2], 1)


def _address(text: str) -> str:
    try:
        return str(ip_address(text or "0.0.0.0"))  # an empty one is every address, as upstream
    except ValueError:
        raise InvalidValue("is not an IP address", "write it like 0.0.0.0 or ::1") from None


def _cidrs(text: str) -> tuple[str, ...]:
    parts = [part for part in text.strip().split(",") if part]
    try:
        networks = [ip_network(part, strict=False) for part in parts]
    except ValueError:
        raise InvalidValue("is not a network", "write it like 10.244.0.0/16") from None
    if len(parts) > 2 or len({network.version for network in networks}) != len(parts):
        raise InvalidValue("is not one network, or one of each IP family", "drop one of them")
    return tuple(str(network) for network in networks)


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (part.strip() for part in text.split(","))))


def _controllers(text: str) -> tuple[str, ...]:
    return canonical(_names(text))


def _rates(text: str) -> dict[str, float]:
    invalid = InvalidValue("is not a list of rates", "write class=calls-per-second,…")
    found: dict[str, float] = {}
    for name, value in _pairs(text, invalid):
        try:
            found[name] = _number(value)
        except InvalidValue:
            raise invalid from None
        if not name or found[name] <= 0:
            raise InvalidValue(f"has no rate above 0 for {name!r}", invalid.remedy)
    return found


def _levels(text: str) -> dict[str, int]:
    invalid = InvalidValue("is not a list of levels", "write pattern=N,…")
    pairs = _pairs(text, invalid)
    if not all(pattern and re.fullmatch("[0-9]{1,9}", level) for pattern, level in pairs):
        raise invalid
    return {pattern: int(level) for pattern, level in pairs}


def _feature_gates(text: str) -> dict[str, bool]:
    pairs = _pairs(text, InvalidValue("is not a list of feature gates", "write Name=true,…"))
    return {name: _boolean(value) for name, value in pairs}


def _pairs(text: str, invalid: InvalidValue) -> list[tuple[str, str]]:
    pairs = [part.partition("=") for part in _names(text)]
    if not all(separator for _, separator, _ in pairs):
        raise invalid
    return [(name.strip(), value.strip()) for name, _, value in pairs]


def _key_values(text: str) -> dict[str, str]:
    """One pair as it is, several with commas and quotes as in CSV (pflag's StringToString)."""
    is_single = text.count("=") == 1 and not text.startswith('"')
    pairs = [text] if is_single else next(csv.reader([text]), [])
    parts = [pair.partition("=") for pair in pairs]
    if not all(separator for _, separator, _ in parts):
        raise InvalidValue("is not a list of keys and values", "write key=value,…")
    return {key: value for key, _, value in parts}


def _csv(values: dict[str, str]) -> str:
    line = StringIO()
    csv.writer(line, lineterminator="").writerow(f"{key}={value}" for key, value in values.items())
    return line.getvalue()


def _cert_key(text: str) -> tuple[CertKey, ...]:
    if not text.strip():
        return ()
    files, _, hosts = text.partition(":")
    parts = [part.strip() for part in files.split(",")]
    if len(parts) != 2 or not all(parts):
        remedy = "write certificate,key or certificate,key:name,…"
        raise InvalidValue("is not a pair of files", remedy)
    return (CertKey(parts[0], parts[1], _names(hosts)),)


def _lower(value: object) -> str:
    return str(value).lower()


def _general(value: float) -> str:
    return f"{value:g}"


def _list(values: Iterable[object]) -> str:
    return ",".join(map(str, values))


def _mapping(values: dict[str, Any]) -> str:
    return ",".join(
        f"{key}={_general(value) if isinstance(value, float) else _lower(value)}"
        for key, value in values.items()
    )


def choice(*allowed: str, metavar: str = "") -> Syntax:
    """One of these words; an empty one means that the flag was not given."""
    offered = f"choose one of {', '.join(filter(None, allowed))}"
    parse = _where(str, lambda text: text in allowed, "is not known", offered)
    return Syntax(metavar or "|".join(allowed), parse)


_positive = _where(_int, lambda n: n > 0, "must be a positive number", "use 1 or more")

TEXT = Syntax("TEXT", str)
NAME = Syntax("NAME", _where(str, bool, "cannot be empty", "name one, or leave the flag out"))
WEB_ADDRESS = Syntax(
    "URL",
    _where(
        str,
        re.compile(r"(https?://\S+)?").fullmatch,
        "is not a web address",
        "give one such as https://wiki.local/ccm",
    ),
)
FILE = Syntax("FILE", str)
DIRECTORY = Syntax("DIR", str)
DURATION = Syntax(
    "DURATION",
    _where(_duration, lambda s: s > 0, "must be longer than 0", "use for example 20s"),
    format_duration,
)
DURATION_OR_ZERO = Syntax(
    "DURATION",
    _where(_duration, lambda s: s >= 0, "cannot be negative", "use 0s or more"),
    format_duration,
)
BOOLEAN = Syntax("BOOL", _boolean, _lower)
POSITIVE = Syntax("N", _positive)
NON_NEGATIVE = Syntax("N", _where(_int, lambda n: n >= 0, "cannot be negative", "use 0 or more"))
PREFIX_LENGTH = Syntax(
    "N", _where(_int, lambda n: 0 <= n <= 128, "is not a prefix length", "use one such as 24, or 0")
)
CONCURRENCY = Syntax(  # 0 stands for a flag that is not given
    "N", lambda text: _positive(text) if text else 0, lambda value: str(value or "")
)
SIZE = Syntax("SIZE", _size)
RATE = Syntax(
    "RATE",
    _where(_number, lambda rate: rate >= 0, "cannot be negative", "use 0 for no limit"),
    _general,
)
SHARE = Syntax("SHARE", _number, _general)
PORT = Syntax(
    "PORT",
    _where(
        _int,
        lambda port: 0 <= port <= 65535,
        "is not a port",
        "use a number from 1 to 65535, or 0 to serve nothing",
    ),
)
ADDRESS = Syntax("IP", _address)
DELETION_LIMIT = Syntax(
    "N,SHARE%",
    _where(
        str,
        re.compile(r"[0-9]{1,9}(,[0-9]{1,9}(\.[0-9]{1,9})?%)?").fullmatch,
        "is not a limit",
        "write a number like 10, or with a share: 10,10%",
    ),
)
CIDRS = Syntax("CIDR[,CIDR]", _cidrs, _list)
NAMES = Syntax("NAME,…", _names, _list, _chained)
TLS_CURVES = Syntax(
    "N,…",
    _where(
        lambda text: tuple(_int(part) for part in _names(text)),
        lambda curves: all(0 < curve <= 65535 for curve in curves),
        "is not a list of TLS curve numbers",
        "write numbers like 29,23,24",
    ),
    _list,
    _chained,
)
CONTROLLERS = Syntax("NAME,-NAME,*", _controllers, _list, _chained)
CERT_KEYS = Syntax("CERT,KEY[:NAME,…]", _cert_key, _list, _chained)
RATES = Syntax("CLASS=RATE,…", _rates, _mapping, _merged)
KEY_VALUES = Syntax("KEY=VALUE,…", _key_values, _csv, _merged)
FEATURE_GATES = Syntax("NAME=BOOL,…", _feature_gates, _mapping, _merged)
LEVELS = Syntax("PATTERN=N,…", _levels, _mapping, _merged)
