"""The Helm chart: what of it follows from the code, and the archive that is published."""

import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import orjson
import yaml

from ccm import __version__
from ccm.controllers import DECLARATIONS, load_controller, provided_by, with_defaults
from ccm.kube import cluster_identity, lease, service_accounts
from ccm.kube.service_accounts import account_name
from ccm.manifests.rbac import rule_body
from ccm.model.objects import watched_kind
from ccm.model.rbac import PolicyRule, event_rule, merge_rules
from ccm.settings.declaration import Flag
from ccm.settings.flags import flags
from ccm.settings.syntax import (
    ADDRESS,
    BOOLEAN,
    CIDRS,
    CONCURRENCY,
    DELETION_LIMIT,
    DURATION,
    DURATION_OR_ZERO,
    NON_NEGATIVE,
    PORT,
    POSITIVE,
    PREFIX_LENGTH,
    RATE,
    SHARE,
    SIZE,
    WEB_ADDRESS,
    Syntax,
)
from ccm.supervisor.informer import RESOURCES
from release.packages import compressed, packed
from release.tree import NAME, ROOT, clouds

CHART = ROOT / "deploy" / "chart"
MADE = "# Made from the code by `make chart`: do not edit.\n"

NEEDED_FLAGS = (
    "authentication-skip-lookup", "bind-address", "cloud-config", "cloud-provider", "controllers",
    "leader-elect", "leader-elect-resource-name", "leader-elect-resource-namespace", "secure-port",
    "shutdown-timeout", "use-service-account-credentials",
)  # fmt: skip
"""Those that templates ask for."""

NO_FLAGS = ("config", "enable-leader-migration", "leader-migration-config")
"""Those that name files which Helm cannot see, and on which the rights depend."""

EVERYWHERE = "*"  # as a namespace in rights.yaml

Json = dict[str, Any]


def made_files() -> Iterator[tuple[Path, str]]:
    """Each file of the chart that follows from the code, or ends with something that does."""
    yield CHART / "rights.yaml", MADE + yaml.safe_dump(rights(), sort_keys=False)
    yield CHART / "Chart.yaml", MADE + yaml.safe_dump(_chart(), sort_keys=False)
    schema = orjson.dumps(values_schema(), option=orjson.OPT_INDENT_2).decode()
    yield CHART / "values.schema.json", f"{schema}\n"
    yield CHART / "alerts.yaml", MADE + _alerts()
    dashboard = orjson.loads((CHART.parent / "dashboard.json").read_bytes())
    yield CHART / "dashboard.json", orjson.dumps(dashboard).decode() + "\n"
    readme = CHART / "README.md"
    introduction, heading, _ = readme.read_text().partition("## Values\n")
    yield readme, introduction + heading + _table_of_values()


def archive() -> tuple[str, bytes]:
    """Its name and content, as `helm package` would have them."""
    files = {
        f"{NAME}/{path.relative_to(CHART)}": (path.read_bytes(), False)
        for path in CHART.rglob("*")
        if path.is_file()
    }
    return f"{NAME}-{__version__}.tgz", compressed(packed(files))


def _chart() -> Json:
    return {
        "apiVersion": "v2",
        "name": NAME,
        "description": "A Kubernetes cloud controller manager that runs each controller on its own",
        "type": "application",
        "version": __version__,
        "appVersion": __version__,
        "kubeVersion": ">=1.30.0-0",
        "keywords": ["cloud-controller-manager", "cloud-provider", *clouds()],
    }


def rights() -> Json:
    """What `ccm-supervisor manifests` knows, for templates to choose from."""
    defaults = {flag.name: flag.syntax.format(flag.default) for flag in flags()}
    create, known = lease.policy_rules("", ["name"])
    return {
        "defaults": {name: defaults[name] for name in NEEDED_FLAGS},
        "events": rule_body(event_rule()),
        "clusterIdentity": rule_body(cluster_identity.POLICY_RULE),
        "newLease": rule_body(create),
        "knownLease": _unnamed(known),
        "tokens": _unnamed(*service_accounts.policy_rules(["name"])),
        "controllers": [*_controllers()],
    }


def _controllers() -> Iterator[Json]:
    for one in DECLARATIONS:
        for alias, name in one.aliases.items():
            yield _controller([name, alias], one.package, "", one.rules[name])
    for provider in clouds():
        for name in provided_by(provider):
            rules = load_controller(name, provider).POLICY_RULES
            found = _controller([name], name, provider, rules)
            yield found | {"byStar": name in with_defaults(["*"], provider)}


def _controller(
    names: list[str], worker: str, provider: str, rules: tuple[PolicyRule, ...]
) -> Json:
    projections = load_controller(worker, provider).PROJECTIONS
    merged = merge_rules(rules)
    return {
        "names": names,
        "account": account_name(worker),
        "provider": provider,
        "watches": sorted(
            {RESOURCES[watched_kind(each.kind)].rpartition("/")[2] for each in projections}
        ),
        "rules": {
            namespace or EVERYWHERE: [rule_body(rule) for rule in granted]
            for namespace, granted in groupby(merged, lambda rule: rule.namespace)
        },
    }


def _unnamed(rule: PolicyRule) -> Json:
    body = rule_body(rule)
    del body["resourceNames"]
    return body


def values_schema() -> Json:
    """Types of all values by their defaults; every flag of `start` by its declaration."""
    values: Json = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = _schema_of(values) | {"$schema": "http://json-schema.org/draft-07/schema#"}
    properties = schema["properties"]
    properties["global"] = {"type": "object"}
    for path, narrower in NARROWER.items():
        *above, name = path.split(".")
        place = properties
        for each in above:
            place = place[each]["properties"]
        place[name] |= narrower
    properties["flags"] = {
        "type": "object",
        "required": ["cloud-provider"],
        "additionalProperties": False,
        "properties": {flag.name: _flag(flag) for flag in flags() if flag.name not in NO_FLAGS},
    }
    named = properties["flags"]["properties"]
    named["cloud-provider"]["minLength"] = 1
    named["shutdown-timeout"]["pattern"] = "^[0-9]+s$"  # the grace period follows from it
    return schema


_DURATION = r"^(([0-9]+(\.[0-9]*)?|\.[0-9]+)(h|m|s|ms|us|µs|ns))+$"
_WHOLE = {"type": ["integer", "string"], "pattern": "^[0-9]+$", "minimum": 0}
_NUMBER = {"type": ["number", "string"], "pattern": r"^[0-9]+(\.[0-9]+)?$", "minimum": 0}
SYNTAXES: Mapping[Syntax, Json] = {
    BOOLEAN: {"type": "boolean"},
    DURATION: {"type": "string", "pattern": _DURATION},
    DURATION_OR_ZERO: {"type": ["string", "integer"], "pattern": f"^0$|{_DURATION}", "maximum": 0},
    POSITIVE: _WHOLE | {"minimum": 1},
    NON_NEGATIVE: _WHOLE,
    CONCURRENCY: _WHOLE | {"minimum": 1},
    PREFIX_LENGTH: _WHOLE | {"maximum": 128},
    PORT: _WHOLE | {"maximum": 65535},
    SIZE: {"type": ["integer", "string"], "pattern": "^[0-9]+(Ki|Mi|Gi|k|M|G)?$", "minimum": 0},
    RATE: _NUMBER,
    SHARE: _NUMBER,
    ADDRESS: {"type": "string", "pattern": "^[0-9a-fA-F:.]*$"},
    CIDRS: {"type": "string", "pattern": r"^[0-9a-fA-F:./, ]*$"},
    WEB_ADDRESS: {"type": "string", "pattern": r"^(https?://\S+)?$"},
    DELETION_LIMIT: {"type": ["integer", "string"], "pattern": r"^[0-9]+(,[0-9.]+%)?$"},
}
"""What a value of a flag may look like; all else is text, or a list of texts."""


def _flag(flag: Flag) -> Json:
    found = SYNTAXES.get(flag.syntax)
    if found is None:
        found = {"type": ["string", "number"]}
        if flag.syntax.is_repeatable:
            pattern = {"pattern": "="} if flag.syntax.is_mapping else {}
            found = {
                "type": ["string", "array"],
                "items": {"type": ["string", "number"], **pattern},
            }
        elif "|" in flag.syntax.metavar:
            found = {"enum": flag.syntax.metavar.split("|")}
    return {**found, "description": flag.help}


def _objects(**texts: Json) -> Json:
    """A list of objects that have to have these fields."""
    items: Json = {"type": "object", "properties": texts, "required": [*texts]}
    return {"items": items}


_TEXT = {"type": "string", "minLength": 1}
_TEXTS = {"additionalProperties": {"type": "string"}}
_INTERVAL = {"pattern": _DURATION}

NARROWER: Mapping[str, Json] = {
    "kind": {"enum": ["daemonset", "deployment", "none"]},
    "nameOverride": {"pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$", "maxLength": 40},
    "replicas": {"minimum": 1},
    "image.repository": {"minLength": 1},
    "image.digest": {"pattern": "^(sha256:[0-9a-f]+)?$"},
    "image.pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "imagePullSecrets": _objects(name=_TEXT),
    "secretFiles": _objects(secretName=_TEXT, mountPath=_TEXT | {"pattern": "^/"}),
    "env": _objects(name=_TEXT),
    "envFrom": _objects(),
    "extraVolumes": _objects(name=_TEXT),
    "extraVolumeMounts": _objects(name=_TEXT, mountPath=_TEXT),
    "initContainers": _objects(name=_TEXT, image=_TEXT),
    "extraContainers": _objects(name=_TEXT, image=_TEXT),
    "tolerations": _objects(),
    "topologySpreadConstraints": _objects(topologyKey=_TEXT),
    "hostAliases": _objects(ip=_TEXT),
    "serviceAccount.annotations": _TEXTS,
    "podAnnotations": _TEXTS,
    "podLabels": _TEXTS,
    "nodeSelector": _TEXTS,
    "dnsPolicy": {"enum": ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"]},
    "podMonitor.interval": _INTERVAL,
    "podMonitor.labels": _TEXTS,
    "serviceMonitor.interval": _INTERVAL,
    "serviceMonitor.labels": _TEXTS,
    "networkPolicy.from": _objects(),
    "dashboard.labels": {"type": "object", **_TEXTS},
    "prometheusRule.labels": _TEXTS,
    "prometheusRule.docsUrl": {"pattern": "^https?://"},
}
"""What is narrower than the type of a default, by the path of the value."""


OPEN = (
    "podSecurityContext", "securityContext", "resources", "nodeSelector", "livenessProbe",
    "readinessProbe", "labels",
)  # fmt: skip
"""Values whose fields are Kubernetes' own: the API server reports what is wrong with them."""


def _schema_of(value: Any, name: str = "") -> Json:
    match value:
        case bool():
            return {"type": "boolean"}
        case int():
            return {"type": "integer"}
        case str():
            return {"type": "string"}
        case list():
            return {"type": "array"}
        case dict() if value and name not in OPEN:
            properties = {key: _schema_of(each, key) for key, each in value.items()}
            return {"type": "object", "additionalProperties": False, "properties": properties}
        case _:
            return {"type": "object"}


def _alerts() -> str:
    """The rules of `deploy/alerts.yaml`, without the comment on how to edit that file."""
    text = (CHART.parent / "alerts.yaml").read_text()
    return text[text.index("groups:\n") :]


def _table_of_values() -> str:
    """A row for each value; those that follow each other without a line between share a comment."""
    text = (CHART / "values.yaml").read_text()
    rows = ["\n| value | default | meaning |\n|---|---|---|\n"]
    for block in text.strip().split("\n\n"):
        comment = " ".join(re.findall(r"^# (.*)$", block, re.MULTILINE))
        for name, value in yaml.safe_load(block).items():
            default = orjson.dumps(value).decode() if not isinstance(value, str) else value
            rows.append(f"| `{name}` | `{default}` | {comment} |\n")
    return "".join(rows)
