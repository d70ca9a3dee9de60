"""How long the kit waits for a cloud on this machine, which may be slow or busy."""

import base64
import json
from urllib.parse import quote

from ccm.cloud.testkit.adapter import Adapter
from tests.support.deadlines import timeout


def huge_error(*secrets: str) -> str:
    """An error of megabytes, with secrets of the request in the forms in which clouds show them."""
    forms = [form(one) for one in secrets for form in (str, quote, _encoded)]
    text = f"you sent {' '.join(forms)}: " + "\x1b[31mno\n" * 600_000
    return json.dumps({"message": text, "error": {"message": text}})


def _encoded(secret: str) -> str:
    return base64.b64encode(f"user:{secret}".encode()).decode()


class PatientAdapter(Adapter):
    """Of all clouds here; a real one gets more time for a call."""

    call_timeout = timeout(1.0)
    operation_timeout = timeout()
