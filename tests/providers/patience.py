"""How long the kit waits for a cloud on this machine, which may be slow or busy."""

import json

from ccm.cloud.testkit.adapter import Adapter
from tests.support.deadlines import timeout

HUGE_ERROR = json.dumps({"message": "\x1b[31mno\n" * 600_000})


class PatientAdapter(Adapter):
    """Of all clouds here; a real one gets more time for a call."""

    call_timeout = timeout(1.0)
    operation_timeout = timeout()
