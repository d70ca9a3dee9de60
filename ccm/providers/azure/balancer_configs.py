"""Several load balancers as azure.json has them: which Services and which machines each one takes.

Those are upstream's keys. A selector is as Kubernetes has them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ccm.cloud.config_file import TextReading, choice, of_form
from ccm.cloud.sections import Faults, Format, keys_of, setting
from ccm.cloud.yaml_file import YamlReader
from ccm.yaml_document import YamlMapping

KEY = "multipleStandardLoadBalancerConfigurations"
INTERNAL_SUFFIX = "-internal"
IN, NOT_IN, EXISTS, ABSENT = "In", "NotIn", "Exists", "DoesNotExist"
NAME: TextReading = of_form(r"[A-Za-z0-9_().-]+", "give a name as Azure has it")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One of a selector's: what a label has to be."""

    key: str = ""
    operator: str = setting("", choice(IN, NOT_IN, EXISTS, ABSENT))
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        is_met = labels.get(self.key) in self.values if self.values else self.key in labels
        return is_met != (self.operator in (NOT_IN, ABSENT))


Selector = tuple[Requirement, ...]
"""All of them have to hold; without any it takes everything."""


def matches(selector: Selector | None, labels: Mapping[str, str]) -> bool:
    """Whether a selector takes what has these labels; so does none."""
    return all(item.holds(labels) for item in selector or ())


@dataclass(frozen=True, slots=True)
class BalancerConfig:
    """One load balancer and its internal twin, which has the same rules."""

    name: str = setting("", NAME)
    primary_vm_set: str = setting("", NAME, name="primaryVMSet")
    allow_service_placement: bool = True
    service_label_selector: Selector | None = None
    service_namespace_selector: Selector | None = None
    node_selector: Selector | None = None

    @property
    def key(self) -> str:
        """Its name, comparable."""
        return self.name.lower()

    @property
    def selects(self) -> bool:
        """Whether it takes some Services alone; a selector without requirements counts."""
        return (self.service_label_selector, self.service_namespace_selector) != (None, None)

    def takes(self, labels: Mapping[str, str], namespace: Mapping[str, str]) -> bool:
        """Whether a Service with these labels may be on it, by those of its namespace."""
        by_namespace = matches(self.service_namespace_selector, namespace)
        return by_namespace and matches(self.service_label_selector, labels)


SELECTORS = "serviceLabelSelector", "serviceNamespaceSelector", "nodeSelector"


def read_balancer_configs(
    reader: YamlReader, root: YamlMapping, form: Format
) -> tuple[BalancerConfig, ...]:
    """Take them out of the document; what is wrong is recorded with its place."""
    listed, line = root.pop(KEY, None), root.lines.get(KEY, 0)
    if listed is not None and not isinstance(listed, list):
        reader.faults.add(KEY, "is not a list", "write its items below it", line)
        return ()
    found = list[BalancerConfig]()
    for number, item in enumerate(listed or (), 1):
        place = f"{KEY} {number}"
        reader.faults.origins[place] = line
        raw = _spelled(reader.as_mapping(item, place), keys_of(BalancerConfig, form))
        by_label, by_namespace, of_nodes = (
            _selector(reader, raw.pop(key, None), f"{place} {key}") for key in SELECTORS
        )
        read = reader.read(BalancerConfig, raw, place)
        named = read.name, read.primary_vm_set, read.allow_service_placement
        found.append(BalancerConfig(*named, by_label, by_namespace, of_nodes))
    return tuple(found)


def _spelled(raw: YamlMapping, keys: list[str]) -> YamlMapping:
    """With known keys as they are spelled: Go takes them in any case of letters."""
    known, found = {key.lower(): key for key in keys}, YamlMapping()
    for key, value in raw.items():
        found.put(known.get(key.lower(), key), value, raw.lines[key])
    return found


def _selector(reader: YamlReader, value: object, place: str) -> Selector | None:
    if value is None:
        return None
    keys = ["matchLabels", "matchExpressions"]
    raw = _spelled(reader.as_mapping(value, place), keys)
    reader.check_keys(raw, place, keys)
    found = [
        Requirement(key, IN, (text if isinstance(text, str) else "",))
        for key, text in reader.mapping(raw, "matchLabels", place).items()
    ]
    return (*found, *_expressions(reader, raw.get("matchExpressions"), place))


def _expressions(reader: YamlReader, listed: object, place: str) -> Iterator[Requirement]:
    place = f"{place} matchExpressions"
    if listed is not None and not isinstance(listed, list):
        reader.faults.add(place, "is not a list", "write its items below it")
    for item in listed if isinstance(listed, list) else ():
        raw = _spelled(reader.as_mapping(item, place), ["key", "operator", "values"])
        found = reader.read(Requirement, raw, place)
        has_values = found.operator in (IN, NOT_IN)
        if not (found.key and found.operator) or bool(found.values) != has_values:
            remedy = "give key, operator, and values for In and NotIn alone"
            reader.faults.add(place, "has an item that is not complete", remedy)
        yield found


def check_balancer_configs(configs: tuple[BalancerConfig, ...], faults: Faults) -> None:
    """Record what upstream refuses as well."""
    for field, key in (("name", "name"), ("primary_vm_set", "primaryVMSet")):
        values = [str(getattr(item, field)).lower() for item in configs]
        if not all(values):
            faults.add(KEY, f"has an item without {key}", "give it one")
        for value in sorted({value for value in values if value and values.count(value) > 1}):
            faults.add(KEY, f"has {key} {value} twice", "give each another one")
    if any(item.key.endswith(INTERNAL_SUFFIX) for item in configs):
        remedy = (
            f"leave internal load balancers out: each item has one called NAME{INTERNAL_SUFFIX}"
        )
        faults.add(KEY, f"has a name that ends with {INTERNAL_SUFFIX}", remedy)
