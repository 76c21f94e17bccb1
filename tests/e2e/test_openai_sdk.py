"""The current OpenAI SDK against a real gateway process: the sync loop, the async loop, the `.stream()` helper."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from e2e.scenarios import CODE, KEY, PARTIAL_TEXT, TEXT, Stage

Seen = tuple[str, str]
"""The text that arrived, and how it ended: the last event's type, or the exception with its code."""

EXPECTED: dict[str, Seen] = {
    "plain": (TEXT, "response.completed"),
    "replayed": (TEXT, "response.completed"),
    "broken-then-replayed": (TEXT, "response.completed"),
    "failed-before-output": ("", "response.failed"),
    "overloaded-before-output": ("", f"APIError {CODE}"),
    "broken-before-output": ("", "InternalServerError stream_read_error"),
    "failed-after-output": (PARTIAL_TEXT, "response.failed"),
    "broken-after-output": (PARTIAL_TEXT, "APIError stream_read_error"),
}


@pytest.fixture
def client(stage: Stage) -> Iterator[OpenAI]:
    with OpenAI(base_url=stage.base_url, api_key=KEY, max_retries=0) as client:
        yield client


class Ear:
    """What a program hears of a stream."""

    def __init__(self) -> None:
        self.text = ""
        self.ending = "nothing"

    def hear(self, event: Any) -> None:
        self.ending = event.type
        if event.type == "response.output_text.delta":
            self.text += event.delta

    def hear_error(self, error: openai.APIError) -> None:
        self.ending = f"{type(error).__name__} {error.code}"

    @property
    def seen(self) -> Seen:
        return self.text, self.ending


def sync_loop(stage: Stage, model: str) -> Seen:
    ear = Ear()
    with OpenAI(base_url=stage.base_url, api_key=KEY, max_retries=0) as client:
        try:
            with client.responses.create(model=model, input="hello", stream=True) as stream:
                for event in stream:
                    ear.hear(event)
        except openai.APIError as error:
            ear.hear_error(error)
    return ear.seen


def async_loop(stage: Stage, model: str) -> Seen:
    async def listen() -> Seen:
        ear = Ear()
        async with AsyncOpenAI(base_url=stage.base_url, api_key=KEY, max_retries=0) as client:
            try:
                async with await client.responses.create(model=model, input="hello", stream=True) as stream:
                    async for event in stream:
                        ear.hear(event)
            except openai.APIError as error:
                ear.hear_error(error)
        return ear.seen

    return asyncio.run(listen())


@pytest.mark.parametrize("loop", [sync_loop, async_loop])
@pytest.mark.parametrize("model", EXPECTED)
def test_the_raw_loop_gets_the_answer_or_the_failure_once(
    stage: Stage, loop: Callable[[Stage, str], Seen], model: str
) -> None:
    assert loop(stage, model) == EXPECTED[model]


@pytest.mark.parametrize("model", ["plain", "replayed", "broken-then-replayed"])
def test_the_stream_helper_gets_a_final_response(client: OpenAI, model: str) -> None:
    with client.responses.stream(model=model, input="hello") as stream:
        types = [event.type for event in stream]
        final = stream.get_final_response()
    assert (types[0], types[-1]) == ("response.created", "response.completed")
    assert (final.id, final.status, final.output_text) == ("resp_answer", "completed", TEXT)


@pytest.mark.parametrize(
    ("model", "error", "said"),
    [
        ("failed-before-output", RuntimeError, "Didn't receive a `response.completed` event"),
        ("overloaded-before-output", openai.APIError, "The engine is overloaded."),
        ("broken-before-output", openai.InternalServerError, "Error code: 502"),
        ("failed-after-output", RuntimeError, "Didn't receive a `response.completed` event"),
        ("broken-after-output", openai.APIError, "the upstream connection failed"),
    ],
)
def test_the_stream_helper_raises_on_a_failure(client: OpenAI, model: str, error: type[Exception], said: str) -> None:
    """It wants `response.created` before anything else, so held events must come before the failure."""
    with pytest.raises(error, match=said), client.responses.stream(model=model, input="hello") as stream:
        stream.get_final_response()


def test_an_sdk_that_retries_by_itself_is_told_not_to(stage: Stage) -> None:
    """After an attempt the SDK's own retries would be second runs that nobody has decided on."""
    before = stage.calls("broken-before-output")
    with (
        OpenAI(base_url=stage.base_url, api_key=KEY, max_retries=2) as client,
        pytest.raises(openai.InternalServerError),
    ):
        client.responses.create(model="broken-before-output", input="hello", stream=True)
    after = stage.calls("broken-before-output")
    assert (after[0] - before[0], after[1] - before[1]) == (1, 1)
