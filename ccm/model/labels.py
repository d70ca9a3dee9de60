"""What may be a label of a Kubernetes object, by the API server's own rules."""

import re

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
MAX_PREFIX = 253  # characters


def is_label_value(value: str) -> bool:
    """Whether the API server takes `value`; it takes an empty one as well."""
    return not value or bool(_NAME.fullmatch(value))


def is_label_key(key: str) -> bool:
    """Whether the API server takes `key`: a name, or a DNS domain, a slash and a name."""
    prefix, slash, name = key.rpartition("/")
    is_prefix = bool(_PREFIX.fullmatch(prefix)) and len(prefix) <= MAX_PREFIX
    return bool(_NAME.fullmatch(name)) and (is_prefix or not slash)


def is_label(key: str, value: str) -> bool:
    """Whether the API server takes both."""
    return is_label_key(key) and is_label_value(value)
