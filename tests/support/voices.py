"""What upstreams say in tests: each route has a voice, and every event it makes names its route.

    world(Reply((A.created, 3.0, Break())), B.answer())

So nothing of a discarded attempt can reach a client unseen: `of_a` in what the client got is A's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gateway.core.messages import Headers
from gateway.upstream.scripted import EVENT_STREAM, JSON_BODY, Reply, Step
from gateway.upstream.scripts import event, response_object, usage_object

ANSWERED = ["created", "in_progress", "output_text.delta", "completed"]
"""The score of `Voice.answer`."""
COMMENT = b": ping\n\n"
NEUTRAL = event("codex.rate_limits", plan_type="plus")
METADATA = event("response.metadata", headers={})


@dataclass(frozen=True, slots=True)
class Voice:
    """The events of one route's upstream, numbered as it numbers them."""

    route: str

    @property
    def mark(self) -> str:
        """What stands in all that this upstream sends, and nowhere else."""
        return f"of_{self.route}"

    @property
    def headers(self) -> Headers:
        """The head of its event stream."""
        return (*EVENT_STREAM, ("x-request-id", f"req_{self.mark}"), ("x-ratelimit-limit-tokens", self.mark))

    @property
    def created(self) -> bytes:
        """`response.created`, numbered 0."""
        return event("response.created", sequence_number=0, response=self._response("in_progress"))

    @property
    def in_progress(self) -> bytes:
        """`response.in_progress`, numbered 1."""
        return event("response.in_progress", sequence_number=1, response=self._response("in_progress"))

    @property
    def prelude(self) -> bytes:
        """Both, in one burst."""
        return self.created + self.in_progress

    def delta(self, text: str = "hi", number: int = 2) -> bytes:
        """`response.output_text.delta`."""
        return self.output("response.output_text.delta", number, delta=text, content_index=0)

    def output(self, event_type: str, number: int = 2, **fields: Any) -> bytes:
        """Any output event."""
        return event(event_type, sequence_number=number, item_id=f"msg_{self.mark}", output_index=0, **fields)

    def ending(self, status: str, usage: object = None, number: int = 3, **response: Any) -> bytes:
        """`response.STATUS`, a terminal event."""
        body = self._response(status, usage=usage, **response)
        return event(f"response.{status}", sequence_number=number, response=body)

    def completed(self, input_tokens: int = 5, output_tokens: int = 1, number: int = 3) -> bytes:
        """`response.completed` with its usage."""
        return self.ending("completed", usage_object(input_tokens, output_tokens), number)

    def failed(self, code: str | None = "server_error", usage: object = None, **response: Any) -> bytes:
        """`response.failed` with an error of that code."""
        error = {"code": code, "message": f"failure {self.mark}"}
        return self.ending("failed", usage, error=error, **response)

    def error(self, code: str | None = "server_error", **fields: Any) -> bytes:
        """`error` as it is sent on the wire: nested. `fields` stand beside the nested object."""
        error = {"type": "some_type", "code": code, "message": f"failure {self.mark}", "param": None}
        return event("error", sequence_number=2, error=error, **fields)

    def answer(self, *before: Step, text: str = "hi") -> Reply:
        """A whole answer, after the steps `before`; its score is `ANSWERED`."""
        return self.reply(*before, self.created, self.in_progress, self.delta(text), self.completed())

    def reply(self, *steps: Step, **options: Any) -> Reply:
        """An event stream of these steps."""
        return Reply(steps, **{"headers": self.headers, **options})

    def status(self, status: int, code: str | None = "some_code", **options: Any) -> Reply:
        """An HTTP status with an error object; `headers` are more headers."""
        error = {"message": f"failure {self.mark}", "type": "some_type", "param": None, "code": code}
        headers = (*JSON_BODY, ("x-request-id", f"req_{self.mark}"), *options.pop("headers", ()))
        return Reply((json.dumps({"error": error}).encode(),), status=status, headers=headers, **options)

    def _response(self, status: str, **fields: Any) -> Mapping[str, Any]:
        return response_object(f"resp_{self.mark}", status, **fields)


def repeat(count: int, *steps: Step) -> list[Step]:
    """The steps, so many times over."""
    return [*steps] * count


A = Voice("a")
B = Voice("b")
C = Voice("c")
"""For a second reply of a route: C's bytes are not those of the route's first one."""
