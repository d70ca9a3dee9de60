"""Text of others: bounded, on one line, without secrets, in time that grows with its length."""

import base64
import html
import json
import logging
import time
from collections.abc import Callable
from urllib.parse import quote

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ccm.cloud.credentials import is_shown
from ccm.errors import CloudError, KubernetesError, Refused, RetryAfter, Unreachable
from ccm.kube.events import MESSAGE_LIMIT, Event, ObjectRef
from ccm.log import _Line
from ccm.model.cloud import Balancer, Gone, Unknown
from ccm.redaction import (
    ITEMS_SHOWN,
    LOOK_AROUND,
    MOST_READ,
    SECRETS_KEPT,
    TEXT_LIMIT,
    bounded_text,
    redacted,
    register_secrets,
    safe_text,
    safe_values,
)

SECRET = 'Tr&b"ant \\ 0/+é<k>'


def in_basic(user: str) -> Callable[[str], str]:
    return lambda secret: base64.b64encode(f"{user}:{secret}".encode()).decode()


FORMS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "URL": lambda secret: quote(secret, safe=""),
    "small URL": lambda secret: quote(secret, safe="").lower(),
    "JSON": lambda secret: orjson.dumps(secret).decode()[1:-1],
    "Python": repr,
    "XML": lambda secret: secret.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"),
    "HTML": html.escape,
    "HTML by number": lambda secret: "".join(f"&#{ord(char)};" for char in secret),
    "JSON in ASCII": lambda secret: json.dumps(secret)[1:-1],
    "JSON of Go": lambda secret: json.dumps(secret)[1:-1].replace("&", "\\u0026"),
    "JSON of PHP": lambda secret: json.dumps(secret)[1:-1].replace("/", "\\/"),
    **{f"basic {user}": in_basic(user) for user in ("a", "ab", "abc")},
    "base64 for URLs": lambda secret: base64.urlsafe_b64encode(secret.encode()).decode(),
}
ENDS = 4  # characters of base64 that also stand for what is beside the secret


@pytest.mark.parametrize("form", FORMS)
def test_a_known_secret_is_shown_in_no_form(form: str) -> None:
    secret = SECRET.lower() if form == "small URL" else SECRET
    register_secrets(f" {secret}\n")
    echoed = FORMS[form](secret)
    shown = safe_text(f"refused {echoed} of yours")
    assert "[redacted]" in shown
    assert echoed[ENDS:-ENDS] not in shown


@given(
    at=st.integers(0, TEXT_LIMIT + LOOK_AROUND + 50),
    repeated=st.integers(1, 400),
    between=st.sampled_from(["", " "]),
)
def test_a_secret_is_not_shown_in_part_where_a_text_is_cut(
    at: int, repeated: int, between: str
) -> None:
    register_secrets("S3CR3T-S3CR3T-OF-SOME-LENGTH")
    echoed = f"S3CR3T-S3CR3T-OF-SOME-LENGTH{between}" * repeated
    for text in ("." * at + echoed + "." * 9000, "." * 9000 + echoed + "." * at):
        shown = safe_text(text)
        assert not any(part in shown for part in ("S3CR", "NGTH"))


def test_of_a_long_text_the_end_is_shown_as_well() -> None:
    shown = safe_text(f"annotation a is {'9' * 60_000!r}; give 1 to 100")
    assert shown.startswith("annotation a is '999")
    assert shown.endswith("… give 1 to 100")


def test_lines_of_a_private_key_are_known_one_by_one() -> None:
    register_secrets("-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG\nZ0FRRUZBQVND\n-----END")
    assert "MIIE" not in safe_text("line 1 is MIIEvQIBADANBgkqhkiG")


def test_a_secret_of_megabytes_keeps_no_process_busy() -> None:
    """A server may give one as a token, which is registered before its length is looked at."""
    lines, seconds = "".join(f"{number:016}\n" for number in range(200_000)), list[float]()
    for secret in (lines[:MOST_READ], lines):
        began = time.thread_time()
        register_secrets(secret)
        seconds.append(time.thread_time() - began)
    assert seconds[1] < 10 * seconds[0]
    secret = "S3CR3T-" * 100_000
    register_secrets(secret)
    assert "S3CR" not in safe_text(f"refused {secret} of yours")


def test_a_word_that_is_too_short_for_a_secret_hides_nothing() -> None:
    register_secrets("", "no")
    assert safe_text("no room") == "no room"


def test_secrets_that_are_renewed_without_end_take_bounded_memory() -> None:
    for number in range(2 * SECRETS_KEPT):
        register_secrets(f"token-{number:06}")
    assert "token-000000" in safe_text("token-000000")
    assert f"token-{SECRETS_KEPT:06}" not in safe_text(f"token-{SECRETS_KEPT:06}")


def test_what_is_still_in_use_is_not_forgotten_for_tokens_without_end() -> None:
    """A server may give another one each time, and then repeat the password that it got first."""
    for number in range(2 * SECRETS_KEPT):
        register_secrets("correct horse battery")
        register_secrets(f"short-lived-{number:06}")
    assert "horse" not in safe_text("the password is correct horse battery")


@pytest.mark.parametrize(
    "form",
    ["{}b-{:03}-&<>'%/+", "{0}-{1:03}-&<>'%/+-{0}", "name={}-{:03}", "prefix-of-{1:03}-={0}"],
)
def test_tokens_of_one_cloud_hold_up_no_text_of_its_own(form: str) -> None:
    """A hundred tokens of one letter, as another for each request, took a second for each error."""
    text, took = "a" * (TEXT_LIMIT + LOOK_AROUND - 1) + "b" * TEXT_LIMIT, list[float]()
    for piece in ("".join(map("{:04}".format, range(300))), "a" * 1200):
        tokens = [form.format(piece, number) for number in range(SECRETS_KEPT)]
        for token in filter(is_shown, tokens):
            register_secrets(token, token.rpartition("=")[2])
        took.append(seconds(safe_text, text, len(text)))
    assert took[1] < 5 * took[0] + 0.02


def test_where_a_text_is_cut_few_places_are_tried() -> None:
    """For a secret that begins as the text goes on: more is left out then, and no part shown."""
    text, took = "a" * (8 * LOOK_AROUND - 1) + "b" * LOOK_AROUND, list[float]()
    for letter in "ca":
        register_secrets(*(f"{letter * len(text)}{number:03}" for number in range(SECRETS_KEPT)))
        took.append(seconds(lambda it: bounded_text(it, 7 * LOOK_AROUND), text, len(text)))
    assert took[1] < 5 * took[0] + 0.02


TEXTS = st.one_of(
    st.text(max_size=3000),
    st.tuples(
        st.text(min_size=1, max_size=20),
        st.sampled_from(
            ["eyJ", "password=", 'token: "', "bearer ", "://u:", "\x1b[31m", "\\", '"']
        ),
        st.integers(1, 1000),
    ).map(lambda parts: (parts[0] + parts[1]) * parts[2]),
)


@given(TEXTS)
@example("TOKEN: 0TOKEN:0")
def test_safe_text_is_bounded_and_printable_and_stays_as_it_is(text: str) -> None:
    shown = safe_text(text)
    assert len(shown) <= TEXT_LIMIT
    assert shown.isprintable()
    assert safe_text(shown) == shown


PIECES = [
    "eyJ-", "eyJ0eXAi.", 'password="', "password: ", "secret \\", "token: ", "token: x1", "sig=",
    "-----begin private key-----", "-----begin ", "bearer ", "password:bearer ", "://a:", "://a",
    "\\", '"', "'\\\"", "\x1b[31m", "\n", "\ud800", "é", "a@b:", "S3CR3T-S3C",
]  # fmt: skip


@pytest.mark.parametrize("piece", PIECES)
def test_redaction_takes_time_that_grows_with_the_text_alone(piece: str) -> None:
    """Eight times the text takes about eight times as long; what is quadratic, 64 times."""
    register_secrets("S3CR3T-S3CR3T-OF-SOME-LENGTH")
    assert seconds(redacted, piece, 80_000) < 24 * seconds(redacted, piece, 10_000) + 0.02


@pytest.mark.parametrize("piece", PIECES)
def test_what_is_shown_takes_no_longer_for_a_text_of_megabytes(piece: str) -> None:
    assert seconds(safe_text, piece, 5_000_000) < 10 * seconds(safe_text, piece, 50_000) + 0.02


def seconds(function: Callable[[str], str], piece: str, size: int) -> float:
    """Of processor time, the least of three."""
    text = piece * (size // len(piece))

    def once() -> float:
        began = time.thread_time()
        function(text)
        return time.thread_time() - began

    return min(once() for _ in range(3))


def test_a_quote_that_is_not_closed_hides_no_other_field() -> None:
    record = logging.LogRecord("ccm.test", logging.ERROR, __file__, 1, "failed", (), None)
    record.__dict__.update(why='password="CANARY', key="default/web")
    line = orjson.loads(_Line("node-0", as_json=True).format(record))
    assert (line["why"], line["key"]) == ('password="[redacted]', "default/web")


def test_values_are_safe_at_any_depth_and_of_long_lists_the_first_are_shown() -> None:
    register_secrets("S3CR3T")
    made = safe_values(
        {"S3CR3T": ["x" * 9000, {"deep": "a\nb"}, 1, None], "many": list(range(5000))}
    )
    assert made == {
        "[redacted]": ["x" * (TEXT_LIMIT - 1) + "…", {"deep": "a b"}, 1, None],
        "many": list(range(ITEMS_SHOWN)),
    }


HOSTILE = "\x1b[31m S3CR3T " + "é\n" * 2_000_000


class Careless(Refused):
    """As a provider of others may write it."""

    def __init__(self, message: str) -> None:  # without that of its parent
        self.said = message


@pytest.mark.parametrize(
    "made",
    [
        CloudError(HOSTILE),
        Refused(HOSTILE),
        RetryAfter(HOSTILE, 1.0),
        Careless(HOSTILE),
        KubernetesError(422, "Invalid", HOSTILE, None),
        Unreachable(HOSTILE),
    ],
)
def test_the_text_of_an_error_is_safe_however_it_is_made(made: Exception) -> None:
    register_secrets("S3CR3T")
    for text in (str(made), repr(made)):
        assert text.isprintable()
        assert "S3CR3T" not in text
        assert len(text) <= 2 * TEXT_LIMIT
    assert len(str(made)) <= TEXT_LIMIT


def test_what_a_cloud_answers_is_safe() -> None:
    register_secrets("S3CR3T")
    balancer = Balancer("b", (), (HOSTILE,))
    for text in (Gone(HOSTILE).evidence, Unknown(HOSTILE).why, *balancer.warnings):
        assert text == safe_text(HOSTILE)


def test_the_message_of_an_event_is_what_an_api_server_takes() -> None:
    ref = ObjectRef("v1", "Node", "n1", "u1")
    message = Event(ref, "Warning", "Odd", HOSTILE).message
    assert len(message.encode()) <= MESSAGE_LIMIT
    assert message.isprintable()


@pytest.mark.parametrize("as_json", [True, False])
def test_a_log_record_is_bounded_in_each_of_its_parts(as_json: bool) -> None:
    register_secrets("S3CR3T")
    try:
        raise ValueError(HOSTILE) from CloudError(HOSTILE)
    except ValueError as error:
        trace = (ValueError, error, error.__traceback__)
    record = logging.LogRecord("ccm.test", logging.ERROR, __file__, 1, HOSTILE, (), trace)
    record.__dict__.update(why=HOSTILE, all=[HOSTILE] * 2, error=ValueError(HOSTILE))
    line = _Line("node-0", as_json).format(record)
    assert len(line) < 150_000
    assert "S3CR3T" not in line
    assert line.isprintable()
