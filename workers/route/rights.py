"""What the route worker may ask of the API server."""

from ccm.controllers import ROUTE
from ccm.kube.events import right_to_tell
from ccm.model.rights import Right

RIGHTS = {
    ROUTE: (
        Right("nodes/status", ("patch",), "condition NetworkUnavailable"),
        right_to_tell(),
    ),
}
