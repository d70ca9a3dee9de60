"""Serve moto, fixed, on a free loopback port; one call at a time, as its writes undo each other.

Its URL goes into the file that is the first argument; the others are the process that it ends with
and how many rules a security group may have.
"""

import gc
import logging
import os
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from moto import backends
from moto.core import responses
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import make_server

from ccm.processes import die_with_parent
from tests.providers.aws.fixed_moto import fix

KEEP, RESET = "/moto-api/keep", "/moto-api/reset"


class Quiet(MotoRequestHandler):
    """Writes no line for each request."""

    def log_request(self, *_: object) -> None:
        return


def main(url_file: Path, parent: int, rules_per_group: int) -> None:
    die_with_parent(parent)
    fix(rules_per_group)
    for module, name in (
        (backends, "list_of_moto_modules"),
        (responses, "method_names_from_class"),
    ):
        setattr(module, name, _found_once(getattr(module, name)))
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto, asked = DomainDispatcherApplication(create_backend_app), [""]

    def app(environ: Any, start_response: Any) -> Iterable[bytes]:
        asked[0] = environ["PATH_INFO"]
        if asked[0] in (KEEP, RESET):
            start_response("200 OK", [("Content-Length", "0")])
            return ()
        answer: Iterable[bytes] = moto(environ, start_response)
        return answer

    server = make_server("127.0.0.1", 0, app, request_handler=Quiet)
    unfinished = url_file.with_suffix(".new")
    unfinished.write_text(f"http://127.0.0.1:{server.server_port}")
    unfinished.rename(url_file)
    while asked[0] != RESET:
        server.handle_request()
        if asked[0] == KEEP:
            asked[0] = ""
            _keep()
    os._exit(0)  # without freeing the memory that it shares


def _keep() -> None:
    """Go on in a child, and in another one from here whenever it ends well."""
    parent = os.getpid()
    gc.freeze()
    while child := os.fork():
        if os.waitpid(child, 0)[1]:
            os._exit(1)
    die_with_parent(parent)


def _found_once(find: Any) -> Any:
    """What moto looks for at each call, and does not change."""
    return cache(lambda *args: tuple(find(*args)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
