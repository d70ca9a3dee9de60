"""The required node affinity of a volume: what it says about zones, and the one that we write."""

from collections.abc import Mapping
from typing import Any

from ccm.model.cloud import VolumePlace
from ccm.model.objects import Json, mapping, objects, text
from ccm.model.volume import REGION, ZONE


def affinity_for(place: VolumePlace) -> Json:
    """The affinity for nodes in one of its zones; with GA keys only.

    It can never be changed, so that a deprecated key in it would outlive the nodes' labels.
    """
    expressions = [{"key": ZONE, "operator": "In", "values": list(place.zones)}]
    if place.region:
        expressions.append({"key": REGION, "operator": "In", "values": [place.region]})
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}


def admits(affinity: Mapping[str, Any] | None, zone: str, region: str) -> bool:
    """Whether a node in this zone can satisfy `affinity`; an empty region is one not known.

    A key of whatever domain that ends in `/zone` or `/region` is taken for what it says, since CSI
    drivers have keys of their own; every other key is taken for satisfied.
    """
    if affinity is None or affinity.get("required") is None:
        return True
    place = {"zone": zone, "region": region}
    terms = objects(mapping(affinity.get("required")).get("nodeSelectorTerms"))
    return any(_term_admits(term, place) for term in terms)


def _term_admits(term: Json, place: Mapping[str, str]) -> bool:
    """All requirements of a term hold; one without any admits nothing, as in Kubernetes."""
    expressions = objects(term.get("matchExpressions"))
    if not expressions:
        return bool(term.get("matchFields"))
    return all(_expression_admits(expression, place) for expression in expressions)


def _expression_admits(expression: Json, place: Mapping[str, str]) -> bool:
    """An operator that makes no sense for a zone admits nothing: doubt writes no label."""
    domain, _, name = text(expression.get("key")).rpartition("/")
    known = place.get(name, "") if domain else ""
    values = expression.get("values")
    listed = values if isinstance(values, list) else []
    match known, expression.get("operator"):
        case "", _:
            return True
        case _, "In":
            return known in listed
        case _, "NotIn":
            return known not in listed
        case _, operator:
            return operator == "Exists"
