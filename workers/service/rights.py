"""What the service worker may ask of the API server; the spec of a Service it cannot change."""

from ccm.controllers import SERVICE
from ccm.kube.events import right_to_tell
from ccm.model.rights import Right

RIGHTS = {
    SERVICE: (
        Right("services", ("get",), "whether one that vanished is really gone"),
        Right("services/status", ("patch",), "addresses of balancers, our finalizer"),
        right_to_tell(""),
    ),
}
