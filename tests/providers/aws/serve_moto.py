"""Serve moto, mended, on a free loopback port; one call at a time, as its writes undo each other.

Its URL goes into the file that is the first argument; the others are the process that it ends with
and how many rules a security group may have.
"""

import logging
import sys
from collections.abc import Iterable
from pathlib import Path
from threading import Lock
from typing import Any

from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import make_server

from ccm.processes import die_with_parent
from tests.providers.aws.mended import mend


class Quick(MotoRequestHandler):
    """Keeps connections open, and writes no line for each request."""

    protocol_version = "HTTP/1.1"

    def log_request(self, *_: object) -> None:
        return


def main(url_file: Path, parent: int, rules_per_group: int) -> None:
    die_with_parent(parent)
    mend(rules_per_group)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto, lock = DomainDispatcherApplication(create_backend_app), Lock()

    def app(*call: Any) -> Iterable[bytes]:
        with lock:
            answer: Iterable[bytes] = moto(*call)
            return answer

    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quick)
    unfinished = url_file.with_suffix(".new")
    unfinished.write_text(f"http://127.0.0.1:{server.server_port}")
    unfinished.rename(url_file)
    server.serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
