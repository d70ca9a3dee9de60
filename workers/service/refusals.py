"""What a Service asks for that this cloud cannot do: said aloud, with the remedy, never ignored."""

from collections.abc import Collection

from ccm.errors import Refused
from ccm.model.service import Feature, Service

REMEDIES = {
    Feature.UDP: "use TCP in spec.ports[].protocol",
    Feature.MIXED_PROTOCOLS: "give each protocol a Service of its own",
    Feature.SOURCE_RANGES: (
        "remove spec.loadBalancerSourceRanges and the annotation "
        "service.beta.kubernetes.io/load-balancer-source-ranges, and filter elsewhere"
    ),
    Feature.SESSION_AFFINITY: "set spec.sessionAffinity to None",
    Feature.FIXED_IP: "remove spec.loadBalancerIP",
    Feature.DUAL_STACK: "set spec.ipFamilyPolicy to SingleStack or PreferDualStack",
}


def refusal(service: Service, supported_features: Collection[Feature]) -> str:
    """Why this cloud cannot give the Service a balancer, with what to do; empty when it can."""
    try:
        beyond = service.features() - set(supported_features)
    except Refused as wrong:
        return str(wrong)
    return "; ".join(
        f"this cloud's load balancers cannot do {feature}: {REMEDIES[feature]}"
        for feature in Feature
        if feature in beyond
    )
