"""What upstreams do to the real clients of tests/e2e: each scenario is a model of one gateway, with two routes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gateway.upstream.scripted import Reply, Script
from gateway.upstream.scripts import broken, event, prelude, response_object, text_answer, two_step_failure
from support.loopback import LoopbackUpstreams
from support.processes import PATIENT, serving_gateway

KEY = "key-of-the-client"
WORDS = ["A ", "retry ", "must ", "never ", "repeat ", "output."]
TEXT = "".join(WORDS)
PARTIAL_TEXT = "".join(WORDS[:2])
CODE = "server_is_overloaded"
MESSAGE = "The engine is overloaded."

ANSWER = text_answer(WORDS, response_id="resp_answer")
BEGINNING = ANSWER.steps[:7]
"""created, in_progress, no pause, item added, part added, two words: the events 0 to 5."""
OVERLOADED = two_step_failure(CODE, MESSAGE, response_id="resp_overloaded")


def failed(response_id: str, number: int) -> bytes:
    """`response.failed` alone, as some upstreams send it."""
    response = response_object(response_id, "failed", error={"code": CODE, "message": MESSAGE})
    return event("response.failed", sequence_number=number, response=response)


FAILED_BEFORE = Reply((*prelude("resp_failed"), failed("resp_failed", 2)))

SCENARIOS: Mapping[str, tuple[Reply, Reply]] = {
    # what the first route does, what the second does
    "plain": (ANSWER, ANSWER),
    "replayed": (OVERLOADED, ANSWER),
    "broken-then-replayed": (broken(), ANSWER),
    "failed-before-output": (FAILED_BEFORE, FAILED_BEFORE),
    "overloaded-before-output": (OVERLOADED, OVERLOADED),
    "broken-before-output": (broken(), broken()),
    "failed-after-output": (Reply((*BEGINNING, failed("resp_answer", 6))), ANSWER),
    "broken-after-output": (broken(*BEGINNING), ANSWER),
}

CONFIGURATION = """
[server]
absent_store = "false"
allow_inline_secrets = true

[accounts.main]
balance = "unlimited"

[keys.main]
account = "main"
secret = {{ inline = "{key}" }}
"""

ROUTE = """
[routes.{name}]
base_url = "{base_url}"
credential = "none"
price = "free"
"""

MODEL = """
[models.{name}]
routes = {routes}
"""


@dataclass(frozen=True)
class Stage:
    """A real gateway process in front of the scenarios' upstreams."""

    url: str
    scripts: Mapping[str, Script]

    @property
    def base_url(self) -> str:
        """As an SDK takes it."""
        return f"{self.url}/v1"

    @property
    def websocket_url(self) -> str:
        """The WebSocket endpoint."""
        return f"{self.url.replace('http', 'ws', 1)}/v1/responses"

    def calls(self, model: str) -> tuple[int, int]:
        """How many calls the model's two upstreams got so far."""
        first, second = (len(self.scripts[f"{model}-{number}"].calls) for number in (1, 2))
        return first, second


@contextmanager
def staged(replies: Mapping[str, tuple[Reply, Reply]], folder: Path) -> Iterator[Stage]:
    """A gateway that serves each scenario as a model, from `folder`."""
    scripts = {
        f"{model}-{number}": Script(f"{model}-{number}", [reply])
        for model, pair in replies.items()
        for number, reply in enumerate(pair, start=1)
    }
    with LoopbackUpstreams(list(scripts.values())) as upstreams:
        file = write_configuration(folder, {name: upstreams.base_url(name) for name in scripts}, list(replies))
        with serving_gateway(file, PATIENT) as (_, url):
            yield Stage(url, scripts)


def write_configuration(folder: Path, base_urls: Mapping[str, str], models: list[str]) -> Path:
    """The gateway's file: each model has the routes `MODEL-1` and `MODEL-2`."""
    routes = [ROUTE.format(name=name, base_url=base_url) for name, base_url in base_urls.items()]
    served = [MODEL.format(name=model, routes=json.dumps([f"{model}-1", f"{model}-2"])) for model in models]
    file = folder / "gateway.toml"
    file.write_text("".join([CONFIGURATION.format(key=KEY), *routes, *served]), encoding="utf-8")
    return file
