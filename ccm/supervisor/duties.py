"""Which workers there are: a duty is the name of a package under `workers`."""

from ccm.controllers import LIFECYCLE, NODE, is_enabled
from ccm.settings import Settings

NODE_DUTY = "node"


def single_workers(settings: Settings) -> dict[str, str]:
    """Worker name → duty, of the duties that one process does."""
    return {}


def wants_nodes(settings: Settings) -> bool:
    """Whether there are node workers: they do both the node and the lifecycle controller."""
    return any(is_enabled(name, settings.controllers) for name in (NODE, LIFECYCLE))
