"""The OpenAI Agents SDK, over HTTP and over WebSocket: its runner holds the conversation, its tools run here."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
from agents import Agent, ModelSettings, OpenAIProvider, RunConfig, Runner, function_tool
from agents.models.openai_responses import ResponsesWebSocketError

from clients.conversation import COMPLETED, CONNECTION_LIMIT, Asked, Ear, Seen
from clients.situations import FOUND, TOOL


def agents_http(asked: Asked) -> Seen:
    """Server-sent events."""
    return _conversation(asked, is_websocket=False)


def agents_websocket(asked: Asked) -> Seen:
    """`use_responses_websocket`."""
    return _conversation(asked, is_websocket=True)


def _conversation(asked: Asked, *, is_websocket: bool) -> Seen:
    with asyncio.Runner() as runner:
        return runner.run(_converse(asked, is_websocket))


async def _converse(asked: Asked, is_websocket: bool) -> Seen:
    """A run for each turn, but a run plays a tool and the turn behind it by itself."""
    client = openai.AsyncOpenAI(base_url=asked.base_url, api_key=asked.key, max_retries=0)
    provider = OpenAIProvider(openai_client=client, use_responses=True, use_responses_websocket=is_websocket)
    lines: list[str] = []
    previous, may_ask_again = asked.situation.previous, True
    try:
        while len([line for line in lines if not line.endswith("]")]) < asked.situation.turns:
            heard, ear = await _run(asked, provider, previous)
            lines += [*heard, ear.line] if ear.ending != COMPLETED else heard
            if ear.code == CONNECTION_LIMIT and may_ask_again:
                may_ask_again = False
            elif ear.ending != COMPLETED:
                break
            previous = ear.response_id if asked.situation.is_chained else None
            await asyncio.sleep(asked.situation.pause_seconds)
    finally:
        await provider.aclose()
        await client.close()
    return tuple(lines)


async def _run(asked: Asked, provider: OpenAIProvider, previous: str | None) -> tuple[list[str], Ear]:
    """The lines of the turns that were completed, and what was heard of the last one."""
    settings = ModelSettings(store=asked.situation.store)
    agent = Agent(name="client", model=asked.model, model_settings=settings, tools=[lookup])
    config = RunConfig(model_provider=provider, tracing_disabled=True)
    lines: list[str] = []
    ear = Ear()
    try:
        result = Runner.run_streamed(agent, "hello", run_config=config, previous_response_id=previous)
        async for event in result.stream_events():
            if event.type != "raw_response_event":
                continue
            if ear.hear(event.data.to_dict(warnings=False)) and ear.ending == COMPLETED:
                lines.append(ear.line)
                ear = Ear(ending=COMPLETED, response_id=ear.response_id)
    except openai.APIError as error:
        ear.hear_error(type(error).__name__, error.code)
    except ResponsesWebSocketError as error:
        ear.hear_error(type(error).__name__, error.code)
    return lines, ear


def _lookup(city: str) -> str:
    """The weather of a city."""
    return FOUND if city == "Paris" else "unknown"


lookup: Any = function_tool(_lookup, name_override=TOOL)
