"""Compute Engine, its token server and its metadata server in threads of this process."""

import base64
import json
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote, urlsplit
from uuid import uuid4

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.labs.gce.cloud import Cloud
from tests.labs.gce.contract import Contract, Json, Refusal
from tests.labs.gce.project import PROJECT, ZONES

TOKEN, EMAIL = "lab-token", "lab@lab.iam.gserviceaccount.com"
API = "/compute/v1/"
METADATA = "/computeMetadata/v1/"
VERBS = ("GET", "POST", "PUT", "PATCH", "DELETE")
POLL_INTERVAL = 0.05  # seconds between looks of a server that is to end


@dataclass
class Call:
    """A request as it came, with the status of its answer."""

    name: str
    verb: str
    path: str
    query: Mapping[str, Sequence[str]]
    body: Json
    status: int = 0
    is_lost: bool = False

    @property
    def is_write(self) -> bool:
        return self.verb != "GET" and not self.name.endswith((".wait", ".listInstances"))


@dataclass
class Gce:
    """`violations` are answers of ours that break the contract.

    `faults` are taken in order by the requests whose method or `VERB path` they match: `status`,
    `reason`, `message`, `text`, `delay`, `drop` (`before` or `after`), `times`, and `when` is
    `operation` where the change is accepted and fails later. `is_down` is such a fault for ever.
    """

    contract: Contract = field(default_factory=Contract)
    url: str = ""

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """An empty project."""
        self.cloud = Cloud(f"{self.url}{API}")
        self.calls: list[Call] = []
        self.faults: list[Json] = []
        self.is_down: Json = {}
        self.tokens = {TOKEN: 0.0}  # until when (monotonic); 0 is for ever
        self.token_life = 3600
        self.token_requests: list[Json] = []
        self.account_error: Json = {}
        self.has_metadata = True
        self.violations: list[str] = []

    # For tests

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["cloud"], name)

    def fault(self, match: str, **how: Any) -> None:
        self.faults.append({"match": match, "times": 1, **how})

    def writes(self) -> list[str]:
        """The methods of all requests that change something."""
        return [one.name for one in self.calls if one.is_write]

    def names(self) -> list[str]:
        return [one.name for one in self.calls]

    def bodies(self, name: str) -> list[Json]:
        return [one.body for one in self.calls if one.name == name]

    @cached_property
    def _key(self) -> rsa.RSAPrivateKey:
        return rsa.generate_private_key(65537, key_size=1024)  # read 7 times as fast as one of 2048

    def account(self, **more: str) -> Json:
        """The file of a service account key."""
        pem = self._key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        usual = {"type": "service_account", "project_id": PROJECT, "private_key_id": "lab"}
        usual |= {"private_key": pem.decode(), "client_email": EMAIL}
        return {**usual, "token_uri": f"{self.url}/token", **more}

    def account_text(self) -> str:
        return json.dumps(self.account())

    @contextmanager
    def running(self, port: int = 0) -> Iterator["Gce"]:
        """Serve until the end of the block."""
        answers = {f"do_{verb}": _Handler.serve for verb in VERBS}
        handler = type("Handler", (_Handler,), {"gce": self, **answers})
        server = ThreadingHTTPServer(("127.0.0.1", port), handler)
        server.daemon_threads = True
        self.url = f"http://127.0.0.1:{server.server_port}"
        self.reset()
        thread = threading.Thread(target=server.serve_forever, args=(POLL_INTERVAL,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    # Requests

    def answer(self, call: Call, token: str, fault: Json) -> Any:
        """What the API answers; raises `Refusal`."""
        if self.tokens.get(token, -1.0) and self.tokens.get(token, -1.0) < time.monotonic():
            raise Refusal(401, "authError", "Request had invalid authentication credentials.")
        method, places = self.contract.match(call.verb, call.path)
        self.contract.check_call(method, places, call.query)
        if "request" in method.spec:
            self.contract.check(method.spec["request"], call.body)
        late = fault if fault.get("when") == "operation" else None
        with self.cloud.lock:
            found = self.cloud.call(method, places, call.query, call.body, late)
            answer = json.loads(json.dumps(found))
        try:
            self.contract.check(method.spec["response"], answer, is_answer=True)
        except Refusal as error:
            self.violations.append(f"{call.name}: {error}")
            raise Refusal(500, "backendError", str(error)) from error
        return answer

    def name_of(self, verb: str, path: str) -> str:
        try:
            return self.contract.match(verb, path)[0].name
        except Refusal:
            return "?"

    def take_fault(self, call: Call) -> Json:
        """How this request fails; empty when it does not."""
        if self.is_down:
            return self.is_down
        for one in self.faults:
            what = f"{call.verb} {call.path}"
            if re.fullmatch(one["match"], call.name) or re.search(one["match"], what):
                one["times"] -= 1
                if not one["times"]:
                    self.faults.remove(one)
                return one
        return {}

    # Tokens

    def new_token(self) -> Json:
        token = f"ya29.{uuid4().hex}"
        self.tokens[token] = time.monotonic() + self.token_life
        expires = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + self.token_life))
        more = {"accessToken": token, "expireTime": expires}
        return {"access_token": token, "expires_in": self.token_life, "token_type": "Bearer"} | more

    def grant(self, path: str, form: Json) -> tuple[int, Json]:
        """The answer of a token server: to a signed JWT, of STS, to impersonation, to any other."""
        self.token_requests.append({"path": path, **form})
        if self.account_error:
            return 400, self.account_error
        if form.get("grant_type", "").endswith("jwt-bearer"):
            head, claims, signature = form["assertion"].split(".")
            try:
                self._key.public_key().verify(
                    _decode(signature),
                    f"{head}.{claims}".encode(),
                    padding.PKCS1v15(),
                    hashes.SHA256(),
                )
            except InvalidSignature:
                said = "Invalid JWT Signature."
                return 400, {"error": "invalid_grant", "error_description": said}
            said = json.loads(_decode(claims))
            if said["exp"] < time.time() or said["aud"] != f"{self.url}/token":
                return 400, {"error": "invalid_grant", "error_description": "Invalid JWT"}
        return 200, self.new_token()

    def metadata(self, path: str) -> Any:
        """What the metadata server says; None where it is not there."""
        known = {
            "project/project-id": PROJECT,
            "instance/zone": f"projects/1/zones/{ZONES[0]}",
            "instance/network-interfaces/0/network": "projects/1/networks/default",
        }
        if not self.has_metadata:
            return None
        if path == "instance/service-accounts/default/token":
            return self.new_token()
        return known.get(path.rstrip("/"))


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    gce: Gce

    def log_message(self, *args: Any) -> None:
        """Tests look at the calls."""

    def _send(self, status: int, answer: object, headers: Mapping[str, str]) -> None:
        body = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def serve(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        if url.path.startswith(METADATA):
            answer = self.gce.metadata(url.path.removeprefix(METADATA))
            is_asked_well = self.headers.get("Metadata-Flavor") == "Google"
            status = 403 if not is_asked_well else 404 if answer is None else 200
            is_json = "alt=json" in url.query or isinstance(answer, dict)
            shown = json.dumps(answer) if is_json else answer or ""
            self._send(status, shown, {"Metadata-Flavor": "Google"})
        elif url.path.startswith("/token"):
            is_json = "json" in (self.headers.get("Content-Type") or "")
            form = json.loads(raw or b"{}") if is_json else dict(parse_qsl(raw.decode()))
            self._send(*self.gce.grant(url.path, form), {})
        else:
            self._serve_api(url.path, parse_qs(url.query, keep_blank_values=True), raw)

    def _serve_api(self, path: str, query: Mapping[str, Sequence[str]], raw: bytes) -> None:
        gce, path = self.gce, unquote(path).removeprefix(API)
        body = json.loads(raw or b"{}")
        call = Call(gce.name_of(self.command, path), self.command, path, query, body)
        gce.calls.append(call)
        fault = gce.take_fault(call)
        time.sleep(fault.get("delay", 0.0))
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        is_refused = "status" in fault and fault.get("when") != "operation"
        try:
            if fault.get("drop") == "before":
                call.status = -1
            elif is_refused:
                said = fault.get("message", "lab fault")
                raise Refusal(fault["status"], fault.get("reason", "backendError"), said)
            else:
                answer, call.status = gce.answer(call, token, fault), 200
        except Refusal as refusal:
            call.status, answer = refusal.status, refusal.body
        if fault.get("drop"):
            self.close_connection = True
            return
        more = {"Content-Type": "application/json; charset=UTF-8", **fault.get("headers", {})}
        self._send(call.status, fault.get("text", answer), more)
