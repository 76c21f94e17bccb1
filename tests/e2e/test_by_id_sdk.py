"""The OpenAI SDK's calls about a response that exists, against a real gateway process with its SQLite (H2, B9, M1)."""

import json
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI

from e2e.scenarios import KEY, write_configuration
from gateway.upstream.scripted import JSON_BODY, Break, Reply, Script
from gateway.upstream.scripts import event, response_object, usage_object
from support.loopback import LoopbackUpstreams
from support.processes import serving_gateway

NAMED = "resp_1"
QUEUED = event("response.queued", sequence_number=1, response=response_object(NAMED, "queued"))
CREATED = event("response.created", sequence_number=0, response=response_object(NAMED, "queued"))
COMPLETED: dict[str, Any] = {"background": True, "output": [], "usage": usage_object(5, 1)}
DONE = event("response.completed", sequence_number=2, response=response_object(NAMED, "completed", **COMPLETED))


def whole(**body: Any) -> Reply:
    return Reply((json.dumps(body).encode(),), headers=JSON_BODY)


REPLIES = [
    Reply((CREATED, QUEUED, Break())),
    whole(**response_object(NAMED, "in_progress", background=True)),
    Reply((DONE,)),
    whole(object="list", data=[], has_more=False, first_id=None, last_id=None),
    whole(**response_object(NAMED, "completed", **COMPLETED)),
    whole(id=NAMED, object="response", deleted=True),
]


def broken_create(client: OpenAI) -> str:
    """A background response whose stream breaks; its id."""
    named = ""
    try:
        for told in client.responses.create(model="plain", input="hi", background=True, store=True, stream=True):
            if told.type == "response.created":
                named = told.response.id
    except openai.APIError:
        return named
    raise AssertionError("the stream did not break")


def test_a_background_response_is_found_read_resumed_and_deleted_with_the_sdk(tmp_path: Path) -> None:
    """H2, B9, M1: as its users call it."""
    first, second = Script("plain-1", REPLIES), Script("plain-2", [Reply(refuses=True)])
    with LoopbackUpstreams([first, second]) as upstreams:
        urls = {name: upstreams.base_url(name) for name in ("plain-1", "plain-2")}
        file = write_configuration(tmp_path, urls, ["plain"])
        with serving_gateway(file) as (_, url), OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
            named = broken_create(client)
            assert client.responses.retrieve(named).status == "in_progress"
            resumed = client.responses.retrieve(named, stream=True, starting_after=1)
            assert [told.type for told in resumed] == ["response.completed"]
            assert list(client.responses.input_items.list(named)) == []
            assert client.responses.cancel(named).status == "completed"
            client.responses.delete(named)
            assert [model.id for model in client.models.list()] == ["plain"]
            with pytest.raises(openai.NotFoundError) as refused:
                client.responses.retrieve("resp_of_nobody")
            assert refused.value.code == "response_not_found"
    assert (named, len(first.calls), second.calls) == (NAMED, 6, [])
