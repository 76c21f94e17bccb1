"""The current OpenAI SDK against a real gateway process: the sync loop, the async loop, the `.stream()` helper."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
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


# --- one body (H1) ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["plain", "replayed", "broken-then-replayed"])
def test_a_program_that_does_not_stream_gets_its_response(client: OpenAI, model: str) -> None:
    """H1: the SDK's default."""
    response = client.responses.create(model=model, input="hello")
    assert (response.id, response.status, response.output_text) == ("resp_answer", "completed", TEXT)


def test_a_response_that_failed_is_a_response(client: OpenAI) -> None:
    """H1, R8a: with its error."""
    response = client.responses.create(model="failed-before-output", input="hello")
    assert response.error is not None
    assert (response.status, response.error.code) == ("failed", CODE)


@pytest.mark.parametrize("model", ["broken-before-output"])
def test_a_broken_response_is_an_error_that_the_sdk_does_not_repeat(stage: Stage, model: str) -> None:
    """X2: `x-should-retry: false`, though the SDK would repeat a 502 by itself."""
    before = stage.calls(model)
    with (
        OpenAI(base_url=stage.base_url, api_key=KEY, max_retries=2) as client,
        pytest.raises(openai.InternalServerError) as caught,
    ):
        client.responses.create(model=model, input="hello")
    after = stage.calls(model)
    assert (caught.value.status_code, caught.value.code) == (502, "stream_read_error")
    assert (after[0] - before[0], after[1] - before[1]) == (1, 1)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("key", "model", "error", "status", "code"),
    [
        ("another", "plain", openai.AuthenticationError, 401, "invalid_api_key"),
        (KEY, "no-such-model", openai.NotFoundError, 404, "model_not_found"),
        (KEY, "", openai.BadRequestError, 400, "invalid_request"),
    ],
)
def test_a_refusal_is_the_sdks_own_error(
    stage: Stage, stream: bool, key: str, model: str, error: type[openai.APIStatusError], status: int, code: str
) -> None:
    """X2, §9: with code, type, param and the request's id."""
    with (
        OpenAI(base_url=stage.base_url, api_key=key, max_retries=0) as client,
        pytest.raises(error) as caught,
    ):
        client.responses.create(model=model, input="hello", stream=stream)
    body = caught.value.body
    assert isinstance(body, dict)
    assert (caught.value.status_code, caught.value.code) == (status, code)
    assert caught.value.request_id == body["request_id"]
    assert (body["retryable"], set(body)) == (
        False,
        {"message", "type", "code", "param", "retryable", "request_id"},
    )


def test_the_stage_has_a_replay_for_every_turn_however_fast_they_come(stage: Stage) -> None:
    """C4 would leave ten a second to these turns, and the other tests here would see a failure on a fast machine."""
    with ThreadPoolExecutor(8) as threads:
        seen = list(threads.map(lambda _: sync_loop(stage, "replayed"), range(24)))
    assert seen == [EXPECTED["replayed"]] * 24
