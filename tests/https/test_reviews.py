"""Answers that are kept, shared and forgotten."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ccm.supervisor.https.reviews import MOST, Answers
from tests.unit.waiting import let_run


class Source:
    """Gives answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.go = asyncio.Event()
        self.trouble: Exception | None = None

    def about(self, question: str) -> Callable[[], Awaitable[str]]:
        async def ask() -> str:
            self.asked.append(question)
            await self.go.wait()
            if self.trouble:
                raise self.trouble
            return f"answer {len(self.asked)}"

        return ask

    def get(self, answers: Answers[str], question: str = "q") -> "asyncio.Task[str]":
        return asyncio.create_task(answers.get(question, self.about(question)))


@pytest.fixture
async def source() -> Source:
    return Source()


async def test_whoever_leaves_leaves_the_others_to_the_answer(source: Source) -> None:
    answers: Answers[str] = Answers(lambda _: 60.0)
    first, second = source.get(answers), source.get(answers)
    await let_run()
    first.cancel()
    await let_run()
    source.go.set()
    assert await second == "answer 1"
    assert await source.get(answers) == "answer 1"


async def test_a_failure_is_for_those_who_wait_and_for_nobody_later(source: Source) -> None:
    answers: Answers[str] = Answers(lambda _: 60.0)
    waiting = [source.get(answers) for _ in range(3)]
    await let_run()
    source.trouble = ValueError("no")
    source.go.set()
    assert [type(it) for it in await asyncio.gather(*waiting, return_exceptions=True)] == (
        [ValueError] * 3
    )
    source.trouble = None
    assert await source.get(answers) == "answer 2"


async def test_a_failure_that_nobody_waits_for_is_no_news(source: Source) -> None:
    answers: Answers[str] = Answers(lambda _: 60.0)
    only = source.get(answers)
    await let_run()
    only.cancel()
    source.trouble = ValueError("no")
    source.go.set()
    await let_run()
    assert source.asked == ["q"]


async def test_what_nobody_asks_for_again_makes_room(source: Source) -> None:
    answers: Answers[str] = Answers(lambda _: 60.0)
    source.go.set()
    await source.get(answers, "first")
    for number in range(MOST):
        await source.get(answers, f"other {number}")
    await source.get(answers, f"other {MOST - 1}")
    assert len(source.asked) == MOST + 1
    await source.get(answers, "first")
    assert source.asked[-1] == "first"


async def test_the_end_waits_for_no_answer(source: Source) -> None:
    answers: Answers[str] = Answers(lambda _: 60.0)
    waiting = source.get(answers)
    await let_run()
    await answers.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
