"""The OpenAI SDK for Python: the raw loop, sync and async, the `.stream()` helper, and its WebSocket."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
from openai import AsyncOpenAI, OpenAI
from openai.resources.responses.responses import ResponsesConnection

from clients.conversation import Asked, Ear, Seen, converse
from clients.reopening import Reopened


def openai_sync(asked: Asked) -> Seen:
    """`responses.create(stream=True)`."""
    with OpenAI(base_url=asked.base_url, api_key=asked.key, max_retries=0) as client:

        def turn(request: dict[str, Any]) -> Ear:
            ear = Ear()
            try:
                with client.responses.create(**request, stream=True) as stream:
                    for event in stream:
                        ear.hear(event.to_dict(warnings=False))
            except openai.APIError as error:
                ear.hear_error(type(error).__name__, error.code)
            return ear

        return converse(asked, turn)


def openai_async(asked: Asked) -> Seen:
    """The same with `AsyncOpenAI`."""

    async def turn(client: AsyncOpenAI, request: dict[str, Any]) -> Ear:
        ear = Ear()
        try:
            async with await client.responses.create(**request, stream=True) as stream:
                async for event in stream:
                    ear.hear(event.to_dict(warnings=False))
        except openai.APIError as error:
            ear.hear_error(type(error).__name__, error.code)
        return ear

    with asyncio.Runner() as runner:
        client = AsyncOpenAI(base_url=asked.base_url, api_key=asked.key, max_retries=0)
        try:
            return converse(asked, lambda request: runner.run(turn(client, request)))
        finally:
            runner.run(client.close())


def openai_stream(asked: Asked) -> Seen:
    """`responses.stream()` and its final response, whose text has to be what was streamed."""
    with OpenAI(base_url=asked.base_url, api_key=asked.key, max_retries=0) as client:

        def turn(request: dict[str, Any]) -> Ear:
            ear = Ear()
            try:
                with client.responses.stream(**request) as stream:
                    for event in stream:
                        ear.hear(event.to_dict(warnings=False))
                    final = stream.get_final_response()
                    assert final.output_text == ear.text
            except openai.APIError as error:
                ear.hear_error(type(error).__name__, error.code)
            return ear

        return converse(asked, turn)


def openai_websocket(asked: Asked) -> Seen:
    """`responses.connect()`."""

    def ask(connection: ResponsesConnection, request: dict[str, Any]) -> Ear:
        ear = Ear()
        connection.response.create(**request)
        while not ear.hear(connection.recv().to_dict(warnings=False)):
            pass
        return ear

    with OpenAI(base_url=asked.base_url, api_key=asked.key, max_retries=0) as client:
        socket = Reopened(lambda: client.responses.connect().enter(), ask)
        try:
            return converse(asked, socket.turn)
        finally:
            socket.close()
