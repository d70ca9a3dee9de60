"""Kubelets' requests for serving certificates: which wait for approval, and which are stale.

No controller of ours may read them: an administrator does, by `check` and `kubectl ccm explain`.
"""

from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ccm.checks.api_server import list_nodes, list_objects
from ccm.checks.context import CheckContext
from ccm.checks.finding import Finding, abbreviate, ok, warning
from ccm.model.objects import Json, KubernetesObject, Node, text

PATH = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
SIGNER = "kubernetes.io/kubelet-serving"
ACCOUNT = "system:node:"


@dataclass(frozen=True, slots=True)
class ServingRequest:
    """A request that no one has approved or denied, and the IP addresses that it is for."""

    name: str
    node: str
    addresses: frozenset[str]

    def why_stale(self, node: Node | None) -> str:
        """Why an approval would be of no use any more; empty when it would be."""
        if node is None:
            return "there is no such Node"
        has = {
            text(address.get("address"))
            for address in node.addresses
            if "IP" in text(address.get("type"))
        }
        if self.addresses == has:
            return ""
        return f"it is for {_listed(self.addresses)}, and the Node has {_listed(has)} by now"


def _listed(addresses: Iterable[str]) -> str:
    return abbreviate(sorted(addresses)) or "no address"


def waiting_requests(listed: Iterable[Json]) -> Iterator[ServingRequest]:
    """Those of kubelets that wait."""
    from cryptography import x509

    from ccm.supervisor.https.client_ca import value_errors

    for item in map(KubernetesObject, listed):
        user = text(item.spec.get("username"))
        is_decided = item.status.get("conditions") or item.status.get("certificate")
        if item.spec.get("signerName") != SIGNER or not user.startswith(ACCOUNT) or is_decided:
            continue
        try:
            with value_errors():
                pem = b64decode(text(item.spec.get("request")), validate=True)
                extensions = x509.load_pem_x509_csr(pem).extensions
                names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except ValueError:
            continue  # a signer takes it no more than we do
        addresses = frozenset(map(str, names.get_values_for_type(x509.IPAddress)))
        yield ServingRequest(item.name, user.removeprefix(ACCOUNT), addresses)


async def check_serving_certificates(context: CheckContext) -> Iterable[Finding]:
    """Whether kubelets wait for a serving certificate, without which `kubectl logs` fails."""
    requests = waiting_requests(await list_objects(context, PATH))
    nodes = {node.name: node for node in await list_nodes(context)}
    return evaluate_requests(requests, nodes)


def evaluate_requests(
    requests: Iterable[ServingRequest], nodes: Mapping[str, Node]
) -> Iterator[Finding]:
    """What to approve, and what to deny, so that the kubelet asks again."""
    found = [(request, request.why_stale(nodes.get(request.node))) for request in requests]
    if stale := [f"{item.name} of {item.node}: {why}" for item, why in found if why]:
        yield warning(
            f"requests for serving certificates are stale: {abbreviate(stale)}",
            "deny them (kubectl certificate deny), and kubelets ask again; else in 15 minutes",
        )
    if waiting := [f"{item.name} of {item.node}" for item, why in found if not why]:
        yield warning(
            f"requests for serving certificates wait for approval: {abbreviate(waiting)}",
            "approve them (kubectl certificate approve); until then kubectl logs and exec fail",
        )
    if not found:
        yield ok("no request of a kubelet waits")


def explain_requests(requests: Iterable[Json], node: Node) -> Iterator[str]:
    """A sentence about each request of this Node's kubelet that waits."""
    for request in waiting_requests(requests):
        if request.node == node.name:
            why = request.why_stale(node)
            state = f"is stale: {why}; deny it" if why else "waits for approval"
            yield f"serving certificate: request {request.name} {state}"
