"""What the node worker may ask of the API server; it alone may delete Nodes."""

from ccm.controllers import LIFECYCLE, NODE
from ccm.kube.events import right_to_tell
from ccm.model.rights import Right

RIGHTS = {
    NODE: (
        Right("nodes", ("patch",), "provider ID, labels, taint of uninitialised nodes"),
        Right("nodes/status", ("patch",), "addresses"),
        right_to_tell(),
    ),
    LIFECYCLE: (
        Right("nodes", ("patch",), "taint of nodes that are shut down"),
        Right("nodes", ("delete",), "nodes whose machine is gone"),
        right_to_tell(),
    ),
}
