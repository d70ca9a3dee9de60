"""Text of others, made safe to show: bounded, on one line, and without secrets.

Clouds, API servers and objects write texts of any length, and a cloud may echo the request with the
credentials in it. Errors, Events, log records and all that a worker reports pass through here.
"""

import base64
import re
from collections.abc import Iterator
from dataclasses import fields
from html import unescape
from threading import Lock
from typing import Any
from urllib.parse import quote, quote_plus

import orjson

from ccm.printable import printable

TEXT_LIMIT = 500  # characters of one text
ITEMS_SHOWN = 100  # of a list or mapping
CUT = "…"
REDACTED = "[redacted]"

MIN_SECRET = 4  # characters; a shorter value would hide parts of ordinary words
_BY_NUMBER = re.compile(r"\\u((?!d[89a-f])[0-9a-f]{4})", re.IGNORECASE)
_BREAK = re.compile(r" *[\r\n][\r\n\t ]*")
SECRETS_KEPT = 128  # values; beyond that the one that was registered longest ago is forgotten
MOST_READ = 64 << 10  # characters of a secret, of which no one that is used has more
MIN_SECRET_LINE = 16  # characters of a line of a secret that has several, such as a key
MOST_NESTED = 8  # times that a text is searched for what looks like a secret
MOST_TRIED = 16  # places at which the first characters of a secret stand
LOOK_AROUND = 2048  # characters of what is left out that are searched for secrets as well

_NAMED = (
    r"(?:password|passwd|passphrase|secret(?:[-_]?key)?|authorization|api[-_]?key|access[-_]?key"
    r"|private[-_]?key|client[-_]?key[-_]data)"
)
_TOKEN = r"(?:token|signature|\bsig)"
_NAME_END = r"\\*[\"']?\s*"
_SCHEME = r"(?:(?:bearer|basic|aws4-hmac-sha256)\s+)?"
_WORD = r"[^\s\"',;&})\]\\]+"
_NOT_AGAIN = rf"(?!{_SCHEME}\[redacted)"
_NOT_A_VERB = r"(?!(?:is|are|was|has|must|cannot|may|should)\s)"
"""A name of a secret may be the subject of a sentence, as in `password: is missing`."""
_NOT_WORDS = r"(?!(?-i:[a-z]{1,15})(?:[\s,;:.]|$))"
_NAMES_HINTS = ("passw", "passphrase", "secret", "authorization", "key")
_TOKEN_HINTS = ("token", "sig")
_PATTERNS = tuple(
    (hints, re.compile(f"(?is){pattern}"))
    for hints, pattern in (
        # In quotes of any depth of escaping, which may be in a list: up to the same quote.
        (
            (*_NAMES_HINTS, *_TOKEN_HINTS),
            rf"((?:{_NAMED}|{_TOKEN}){_NAME_END}[:=]\s*[\[(]*b?(\\*[\"'])).+?(?=(?<!\\)\2|\Z)",
        ),
        (
            _NAMES_HINTS,
            rf"({_NAMED}{_NAME_END}[:=]\s*{_NOT_A_VERB}{_NOT_AGAIN}{_SCHEME}){_WORD}",
        ),
        # "token: " goes before a reason as well; a token is longer than its words, and has digits.
        (
            _TOKEN_HINTS,
            rf"({_TOKEN}{_NAME_END}(?:=\s*|:(?!\s)|:\s+(?!https?://)(?=\S*\d)(?=\S{{16}}))"
            rf"{_NOT_AGAIN}){_WORD}",
        ),
        (("bearer",), rf"(\bbearer\s+(?:token\s+)?){_NOT_WORDS}[^\s\"',;\\]+"),
        (("-----begin",), r"(-----begin [a-z ]*private key-----).+?(?=-----end|\Z)"),
        # A JSON web token, wherever it stands. Nothing behind it is required: each attempt that
        # failed at the end of a long word would be repeated further on in it.
        (("eyj",), r"()\beyJ[\w-]{6,}(?:\.[\w-]*)*"),
        (("://",), r"(://[^/\s:@]+:)[^@\s/]+(?=@)"),  # the password in a URL
    )
)
"""Each with the words, in small letters, of which a line has one; most lines have none."""


class KnownSecrets:
    """The secrets that this process uses, in all forms in which others may repeat them."""

    def __init__(self) -> None:
        self._forms: dict[str, frozenset[str]] = {}  # by value
        self._longest_first: tuple[str, ...] = ()  # replaced as a whole: threads may read it
        self._lock = Lock()
        self.forgotten = 0
        """How many values were; who still uses one registers it again when this has changed."""

    def add(self, *values: str) -> None:
        """From now on no text shows these values; what is too short to be a secret is left out.

        A server that gives another token each time makes no value forgotten that is still in use,
        as long as that is registered again now and then.
        """
        lines = {line for value in values for line in _lines(value)}
        with self._lock:
            again = {line: self._forms.pop(line) for line in lines & self._forms.keys()}
            new = {line: frozenset(_forms(line)) for line in lines - again.keys()}
            self._forms |= again | new
            if not new:
                return
            self.forgotten += max(len(self._forms) - SECRETS_KEPT, 0)
            self._forms = dict(list(self._forms.items())[-SECRETS_KEPT:])
            forms = frozenset().union(*self._forms.values())
            self._longest_first = tuple(sorted(forms, key=len, reverse=True))

    def redact(self, text: str) -> str:
        """The text without them."""
        for form in self._longest_first:
            if form in text:
                text = text.replace(form, REDACTED)
        return text

    def head(self, text: str, size: int) -> str:
        """The first `size` characters, redacted, without the beginning of a secret at their end."""
        head = self.redact(text[:size])
        return head[: min((_start(form, head) for form in self._longest_first), default=size)]


def _start(form: str, text: str) -> int:
    """Where in the text its last characters begin that are the first ones of `form`.

    Sooner, where as much as begins like it is tried in vain: then more is left out.
    """
    at = text.find(form[:MIN_SECRET], max(len(text) - len(form) + 1, 0))
    for _ in range(MOST_TRIED):
        if at == -1 or form.startswith(text[at:]):
            break
        at = text.find(form[:MIN_SECRET], at + 1)
    return len(text) if at == -1 else at


SECRETS = KnownSecrets()
"""One for the process, as logging is: a sink that it had to be handed to could be forgotten."""


def register_secrets(*values: str) -> None:
    """Call it for each credential, also a renewed one, before it is first used."""
    SECRETS.add(*values)


def register_hidden(record: Any) -> None:
    """Register the fields of a dataclass that its `repr` hides; for its `__post_init__`."""
    hidden = (getattr(record, it.name) for it in fields(record) if not it.repr)
    register_secrets(*(value for value in hidden if isinstance(value, str)))


def without_secrets(text: str) -> str:
    """The text without known secrets."""
    return SECRETS.redact(text)


def redacted(text: str) -> str:
    """The text without known secrets, escaped or not, and without what looks like one: named so, or
    of its form.
    """
    text = without_secrets(text)
    if "&" in text or "\\" in text:
        plain = _unescaped(text)
        text = shown if (shown := without_secrets(plain)) != plain else text
    for _ in range(MOST_NESTED):  # what was replaced may have been in the way of another
        before, has = text, text.lower().__contains__
        for hints, pattern in _PATTERNS:
            if any(map(has, hints)):
                text = pattern.sub(rf"\1{REDACTED}", text)
        if text == before:
            break
    return text


def safe_text(text: object, limit: int = TEXT_LIMIT) -> str:
    """The text on one line of at most `limit` characters, without secrets.

    It takes time for what is shown, not for what is there; safe text stays as it is.
    """
    shown = str(text)
    for _ in range(MOST_NESTED):  # what is left out may bring together what looks like a secret
        before = shown
        shown = redacted(bounded_text(shown, limit + LOOK_AROUND))
        shown = printable(_BREAK.sub(" ", shown))
        shown = _shortened(shown, shown, limit)
        if shown == before:
            break
    return shown


def bounded_text(text: str, limit: int) -> str:
    """Beginning and end of a text that has more than `limit` characters; no part of a secret."""
    if len(text) <= limit:
        return text
    size = limit + LOOK_AROUND
    return _shortened(SECRETS.head(text, size), without_secrets(text[-size:]), limit)


def _shortened(head: str, tail: str, limit: int) -> str:
    """The first words of `head` and the last of `tail`, where a remedy may stand.

    The end begins with a whole word: a part of a secret is not a whole word.
    """
    if head is tail and len(head) <= limit:
        return head
    end = tail[-(limit // 3) :].partition(" ")[2]
    end = f"{CUT} {end}" if end else CUT
    return head[: limit - len(end)] + end


def safe_values(value: Any, limit: int = TEXT_LIMIT) -> Any:
    """The same JSON value with every text in it safe, and the first items of what is long."""
    match value:
        case str():
            return safe_text(value, limit)
        case dict():
            items = list(value.items())[:ITEMS_SHOWN]
            return {_safe_key(key, limit): safe_values(item, limit) for key, item in items}
        case list() | tuple():
            return [safe_values(item, limit) for item in value[:ITEMS_SHOWN]]
        case None | bool() | int() | float():
            return value
    return safe_text(value, limit)


def _safe_key(key: Any, limit: int) -> Any:
    return safe_text(key, limit) if isinstance(key, str) else key


def _unescaped(text: str) -> str:
    """The text without the escapes of HTML and XML, and those of JSON that not all write."""
    plain = unescape(text).replace("\\/", "/")
    return _BY_NUMBER.sub(lambda match: chr(int(match[1], 16)), plain)


def _lines(secret: str) -> Iterator[str]:
    """The secret without what surrounds it, and the lines of one that has several."""
    whole = secret[:MOST_READ].strip()
    if len(whole) >= MIN_SECRET:
        yield whole
    for line in whole.splitlines():
        if len(line) >= MIN_SECRET_LINE and not line.startswith("-----"):
            yield line


def _forms(value: str) -> Iterator[str]:
    """The value as it may stand in a URL, in JSON, in XML, in Python, or within base64."""
    data = value.encode(errors="surrogatepass")
    yield value
    yield printable(value)
    yield repr(value)[1:-1]
    yield value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    yield value.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    for escaped in (quote(data), quote(data, safe=""), quote_plus(data)):
        yield escaped
        yield re.sub("%..", lambda match: match[0].lower(), escaped)
    if value.isprintable():
        yield orjson.dumps(value).decode()[1:-1]
    for shift in range(3):  # bytes of the group of three that belong to what stands before it
        encoded = base64.b64encode(b"\0" * shift + data).decode()
        core = encoded[-(-shift * 8 // 6) : (shift + len(data)) * 8 // 6]
        yield core
        yield core.replace("+", "-").replace("/", "_")
