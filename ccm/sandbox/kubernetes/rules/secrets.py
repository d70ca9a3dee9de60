"""Rules of Secrets."""

from __future__ import annotations

import base64

from ccm.sandbox.kubernetes.objects import Object, section
from ccm.sandbox.kubernetes.rules.rule import Rules


def _default(secret: Object) -> None:
    secret.setdefault("type", "Opaque")
    for name, text in secret.pop("stringData", {}).items():
        section(secret, "data")[name] = base64.b64encode(text.encode()).decode()


SECRET_RULES = Rules(default=_default)
