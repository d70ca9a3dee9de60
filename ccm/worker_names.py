"""Which workers there are, and what they and their controllers are called."""

from ccm.controllers import BY_PACKAGE, DECLARATIONS, enabled_provided, is_enabled
from ccm.settings import Settings


def shard_names(count: int) -> tuple[str, ...]:
    """The names of so many node workers."""
    return tuple(f"node-{number}" for number in range(count))


def controller_names(controller: str) -> tuple[str, ...]:
    """What `--controllers` calls the work of this package, or of the provider's controller."""
    ours = BY_PACKAGE.get(controller)
    return (*ours.aliases.values(),) if ours else (controller,)


def process_name(controller: str) -> str:
    """What people call the processes of this controller."""
    return f"the {controller.replace('_', '-')} worker"


def wanted_workers(settings: Settings) -> dict[str, str]:
    """Worker name → its controller (see `load_controller`), of all that are enabled."""
    wanted: dict[str, str] = {}
    for declaration in DECLARATIONS:
        if any(is_enabled(name, settings.controllers) for name in declaration.aliases.values()):
            is_sharded = declaration.package == "node"
            workers = shard_names(settings.node_workers) if is_sharded else (declaration.worker,)
            wanted |= dict.fromkeys(workers, declaration.package)
    return wanted | {name: name for name in enabled_provided(settings.controllers)}
