"""Credentials of a cloud: what files may hold, and the pause once they were refused."""

import asyncio
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ccm.cloud.credentials import (
    PASSWORD,
    TOKEN,
    Credentials,
    RefusalPause,
    RenewedToken,
    read_secret,
)
from ccm.decide.backoff import Backoff
from ccm.errors import CloudError, Denied, Unauthenticated
from ccm.kube.config import read_token
from ccm.redaction import without_secrets

STEADY = Backoff(first=5.0, most=20.0, jitter=0.0)


def test_a_pipe_in_the_place_of_a_file_keeps_no_one_waiting(tmp_path: Path) -> None:
    """A worker would stand still until someone writes into it, and so would the next one."""
    os.mkfifo(pipe := tmp_path / "secret")
    with pytest.raises(ValueError, match="not a regular file"):
        read_secret(pipe)
    with pytest.raises(OSError, match="not a regular file"):
        read_token(pipe)


@pytest.mark.parametrize(
    ("content", "form", "read"),
    [
        (b"token-1\n", TOKEN, "token-1"),
        (b"  token-2 \r\n\n", TOKEN, "token-2"),
        (b" p\xc3\xa4ss word \r\n", PASSWORD, " päss word "),
    ],
)
def test_what_surrounds_a_secret_is_left_out(
    tmp_path: Path, content: bytes, form: re.Pattern[str], read: str
) -> None:
    (file := tmp_path / "secret").write_bytes(content)
    assert read_secret(file, form) == read
    assert read.strip() not in without_secrets(f"it is {read}!")


@pytest.mark.parametrize(
    ("content", "form", "problem"),
    [
        (None, TOKEN, "cannot be read: No such file"),
        (b" \n", TOKEN, "is empty"),
        (b"\n", PASSWORD, "is empty"),
        (b"\xff", TOKEN, "is not text"),
        (b"two words", TOKEN, "characters and spaces$"),
        (b"two\nlines", PASSWORD, "than one line"),
        (b"bell\x07", PASSWORD, "control characters$"),
        (b"x" * (1 << 20) + b"x", TOKEN, "more than 1048576 bytes"),
    ],
)
def test_what_is_no_secret_is_reported_without_the_path(
    tmp_path: Path, content: bytes | None, form: re.Pattern[str], problem: str
) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ValueError, match=problem) as raised:
        read_secret(file, form)
    assert str(tmp_path) not in str(raised.value)


@dataclass
class Cloud:
    """Takes what is in `taken`; `file` is what is read."""

    file: str = "wrong"
    taken: tuple[str, ...] = ("right",)
    now: float = 1000.0
    shown: list[str] = field(default_factory=list)
    error: Exception | None = None

    async def read(self) -> str:
        return self.file

    async def ask(self, credentials: str) -> str:
        self.shown.append(credentials)
        await asyncio.sleep(0)
        if self.error:
            raise self.error
        if credentials not in self.taken:
            raise Unauthenticated("GetThing: 401")
        return "answer"

    def account(self) -> Credentials[str]:
        made = Credentials(self.read, "[Global] token", "place", STEADY)
        made._pause._clock = lambda: self.now
        return made


async def test_of_many_calls_one_shows_what_is_refused_and_all_hear_since_when() -> None:
    account = (cloud := Cloud()).account()
    errors = await asyncio.gather(
        *(account.use(cloud.ask) for _ in range(9)), return_exceptions=True
    )
    assert cloud.shown == ["wrong"]
    (text,) = {str(error) for error in errors}
    assert re.fullmatch(
        r"GetThing: 401 \(refused since \S+Z; correct \[Global\] token, or allow it in the cloud\)",
        text,
    )
    assert {error.source for error in errors if isinstance(error, Unauthenticated)} == {"place"}


async def test_what_changed_is_shown_at_once_and_another_refusal_begins_again() -> None:
    account = (cloud := Cloud()).account()
    for cloud.file in ("wrong", "wrong", "other", "other", "right", "right"):
        try:
            await account.use(cloud.ask)
        except Unauthenticated:
            cloud.now += 1
    assert cloud.shown == ["wrong", "other", "right", "right"]


async def test_pauses_grow_and_end_with_the_first_success() -> None:
    account = (cloud := Cloud()).account()
    tried = list[float]()
    for cloud.now in range(60):
        with pytest.raises(Unauthenticated):
            await account.use(cloud.ask)
        tried += [cloud.now] * (len(cloud.shown) - len(tried))
    assert tried == [0, 5, 15, 35, 55]
    cloud.taken, cloud.now = ("wrong",), 75
    assert await account.use(cloud.ask) == "answer"
    cloud.taken = ()
    for cloud.now in (76, 77):
        with pytest.raises(Unauthenticated):
            await account.use(cloud.ask)
    assert len(cloud.shown) == 7


async def test_a_pause_grows_by_refusals_alone() -> None:
    """One wrong answer, and then none for long, kept them from being shown for 15 minutes after."""
    account, tried = (cloud := Cloud()).account(), list[float]()
    for cloud.now in range(22):
        with pytest.raises(CloudError):
            await account.use(cloud.ask)
        tried += [cloud.now] * (len(cloud.shown) - len(tried))
        cloud.error = CloudError("503")
    assert tried == [0, 5, 10, 15, 20]


@pytest.mark.parametrize(
    ("error", "is_over"), [(Denied("403"), True), (CloudError("no answer"), False)]
)
async def test_what_else_a_cloud_answers_says_whether_it_took_them(
    error: Exception, is_over: bool
) -> None:
    account = (cloud := Cloud()).account()
    for cloud.now, cloud.error in ((0, None), (5, error), (6, error)):
        with pytest.raises(CloudError):
            await account.use(cloud.ask)
    assert len(cloud.shown) == 2 + is_over


async def test_a_call_that_met_an_exchange_is_made_again_with_the_new_ones() -> None:
    account = (cloud := Cloud(file="right")).account()
    await account.use(cloud.ask)
    cloud.taken = ("new",)

    async def exchanged_meanwhile(credentials: str) -> str:
        cloud.file = "new"
        return await cloud.ask(credentials)

    assert await account.use(exchanged_meanwhile) == "answer"
    assert cloud.shown == ["right", "right", "new"]


async def test_a_first_call_that_hangs_lets_the_others_go_when_it_ends() -> None:
    account = (cloud := Cloud(error=CloudError("no answer"))).account()
    errors = await asyncio.gather(
        *(account.use(cloud.ask) for _ in range(3)), return_exceptions=True
    )
    assert len(cloud.shown) == len(errors) == 3


def test_of_several_threads_one_tries_again() -> None:
    pause = RefusalPause[str]("key", STEADY, clock=lambda: now)
    now = 0.0
    pause.refused("wrong", Unauthenticated("401"))
    now = 5.0
    pause.check("wrong")
    with pytest.raises(Unauthenticated, match="refused since"):
        pause.check("wrong")


@dataclass(frozen=True)
class Token:
    lifetime: float = 100.0
    value: str = "a-token-of-16-ch"


@pytest.mark.parametrize(
    "odd",
    [
        Token(value=""),
        Token(value="cloud_outage"),
        Token(value="a-token-of-16-ch=cloud_outage"),
        Token(value="two words"),
        Token(value="line\n"),
        Token(value="t\xf6ken"),
        Token(value="x" * 70_000),
        Token(lifetime=0.0),
        Token(lifetime=-1.0),
        Token(lifetime=float("nan")),
    ],
)
async def test_a_token_that_no_request_could_show_is_not_kept(odd: Token) -> None:
    """Nothing would leave this process until it ends, which may be in years."""
    answers = [odd, Token()]

    async def renew() -> Token:
        return answers.pop(0)

    tokens = RenewedToken(renew)
    with pytest.raises(CloudError, match="no token that can be used"):
        await tokens.get()
    assert await tokens.get() == Token()
    assert Token().value not in without_secrets(f"it was {Token().value}")


@pytest.mark.virtual_time
async def test_a_token_that_lacks_something_is_renewed_before_its_time() -> None:
    made = list[Token]()

    async def renew() -> Token:
        made.append(Token(lifetime=36_000.0, value=f"a-token-of-16-{len(made):02}"))
        return made[-1]

    tokens = RenewedToken(renew)
    await tokens.get()
    for _ in range(3):
        tokens.renew_within(60.0)
        await asyncio.sleep(25.0)
        await tokens.get()
    assert len(made) == 2


@pytest.mark.virtual_time
async def test_a_token_for_years_is_renewed_within_the_hour() -> None:
    """It may be of another account, to which each call is denied until then."""
    made = list[Token]()

    async def renew() -> Token:
        made.append(Token(lifetime=1e15, value=f"a-token-of-16-{len(made):02}"))
        return made[-1]

    tokens = RenewedToken(renew)
    for _ in range(4):
        await tokens.get()
        await asyncio.sleep(1000.0)
    assert len(made) == 2


@pytest.mark.virtual_time
async def test_a_token_is_renewed_in_time_and_a_refused_one_is_not_used_again() -> None:
    """One that cannot be renewed is used on while it is good."""
    answers: list[Token | CloudError] = [
        Token(),
        CloudError("no"),
        Token(),
        CloudError("no"),
        Token(),
    ]

    async def renew() -> Token:
        answer = answers.pop(0)
        if isinstance(answer, CloudError):
            raise answer
        return answer

    tokens = RenewedToken(renew)
    first = await tokens.get()
    assert await tokens.get() is first
    await asyncio.sleep(81.0)
    assert [await tokens.get() for _ in range(2)] == [first] * 2
    await asyncio.sleep(6.0)
    second = await tokens.get()
    assert second is not first
    with pytest.raises(CloudError):
        await tokens.get(instead_of=second)
    assert await tokens.get() is not second
    assert not answers


@pytest.mark.virtual_time
async def test_while_a_token_is_renewed_all_others_use_the_one_that_is_good() -> None:
    """A token service that hangs held up every call for half a minute, again and again."""
    answers, waits = [Token(), Token(value="another-of-16-ch"), Token()], [0.0, 30.0, 30.0]

    async def renew() -> Token:
        await asyncio.sleep(waits.pop(0))
        return answers.pop(0)

    tokens = RenewedToken(renew)
    first = await tokens.get()
    await asyncio.sleep(81.0)
    renewing = asyncio.create_task(tokens.get())
    await asyncio.sleep(1.0)
    async with asyncio.timeout(1.0):
        assert await tokens.get() is first
    refused = asyncio.create_task(tokens.get(instead_of=first))
    await asyncio.sleep(1.0)
    assert await tokens.get() is await renewing is await refused is not first
    async with asyncio.timeout(1.0):
        await tokens.get(instead_of=first)
    assert answers == [Token()]


@pytest.mark.virtual_time
async def test_a_token_that_has_ended_is_shown_by_no_one_while_it_is_renewed() -> None:
    """Each call would be made twice."""
    answers = [Token(), Token(value="another-of-16-ch")]

    async def renew() -> Token:
        await asyncio.sleep(1.0)
        return answers.pop(0)

    tokens = RenewedToken(renew)
    first = await tokens.get()
    await asyncio.sleep(first.lifetime)
    assert first not in await asyncio.gather(*(tokens.get() for _ in range(3)))


async def test_a_token_that_is_given_again_once_refused_is_not_asked_for_always() -> None:
    """As by Google's metadata server, which keeps what it gave."""
    made = list[Token]()

    async def renew() -> Token:
        made.append(Token())
        return made[-1]

    tokens = RenewedToken(renew)
    first = await tokens.get()
    for _ in range(3):
        await tokens.get(instead_of=first if len(made) == 1 else None)
    assert len(made) == 2
