"""What the volume-label worker may ask of the API server."""

from ccm.controllers import VOLUME
from ccm.kube.events import right_to_tell
from ccm.model.rights import Right

RIGHTS = {
    VOLUME: (
        Right("persistentvolumes", ("patch",), "labels and node affinity"),
        right_to_tell(),
    ),
}
