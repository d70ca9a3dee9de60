"""Several load balancers as azure.json has them: which Services and which machines each one takes.

Those are upstream's keys. A selector is as Kubernetes has them.
"""

from collections.abc import Iterator, Mapping, Sequence
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

    def takes_node(self, labels: Mapping[str, str], vm_set: str) -> bool:
        """Whether a Node with these labels and of this scale or availability set may be on it."""
        return self.primary_vm_set.lower() == vm_set.lower() or matches(self.node_selector, labels)


SELECTORS = "serviceLabelSelector", "serviceNamespaceSelector", "nodeSelector"


def read_balancer_configs(
    reader: YamlReader, root: YamlMapping, form: Format
) -> tuple[BalancerConfig, ...]:
    """Take them out of the document; what is wrong is recorded with its place."""
    reader.faults.origins[KEY] = root.lines.get(KEY, 0)
    found = list[BalancerConfig]()
    for raw in _mappings(reader, root.pop(KEY, None), KEY, keys_of(BalancerConfig, form)):
        by_label, by_namespace, of_nodes = (
            _selector(reader, raw.pop(key, None), f"{KEY} {key}") for key in SELECTORS
        )
        read = reader.read(BalancerConfig, raw, KEY)
        named = read.name, read.primary_vm_set, read.allow_service_placement
        found.append(BalancerConfig(*named, by_label, by_namespace, of_nodes))
    return tuple(found)


def _mappings(
    reader: YamlReader, listed: object, place: str, keys: Sequence[str]
) -> Iterator[YamlMapping]:
    """The items of a list, with known keys as they are spelled: Go takes any case of letters."""
    if listed is not None and not isinstance(listed, list):
        reader.faults.add(place, "is not a list", "write its items below it")
    known = {key.lower(): key for key in keys}
    for item in listed if isinstance(listed, list) else ():
        raw, found = reader.as_mapping(item, place), YamlMapping()
        for key, value in raw.items():
            found.put(known.get(key.lower(), key), value, raw.lines[key])
        yield found


def _selector(reader: YamlReader, value: object, place: str) -> Selector | None:
    if value is None:
        return None
    labels, expressions = "matchLabels", "matchExpressions"
    (raw,) = _mappings(reader, [value], place, (labels, expressions))
    reader.check_keys(raw, place, [labels, expressions])
    found = [
        Requirement(key, IN, (str(item or ""),))
        for key, item in reader.mapping(raw, labels, place).items()
    ]
    place = f"{place} {expressions}"
    for item in _mappings(reader, raw.get(expressions), place, keys_of(Requirement)):
        found.append(part := reader.read(Requirement, item, place))
        has_values = part.operator in (IN, NOT_IN)
        if not (part.key and part.operator) or bool(part.values) != has_values:
            remedy = "give key, operator, and values for In and NotIn alone"
            reader.faults.add(place, "has an item that is not complete", remedy)
    return tuple(found)


def check_balancer_configs(configs: Sequence[BalancerConfig], faults: Faults) -> None:
    """Record what upstream refuses as well."""
    sets = [item.primary_vm_set.lower() for item in configs]
    for key, values in (("name", [item.key for item in configs]), ("primaryVMSet", sets)):
        if len({*values} - {""}) < len(configs):
            faults.add(KEY, f"has items without {key}, or with one", "give each its own")
    if any(item.key.endswith(INTERNAL_SUFFIX) for item in configs):
        remedy = f"leave it out: each load balancer has a twin called NAME{INTERNAL_SUFFIX}"
        faults.add(KEY, f"has a name that ends with {INTERNAL_SUFFIX}", remedy)
