# ruff: noqa: T201 - the article's SSE program as it is printed there, but for the base URL and the model
import os

from openai import OpenAI

with OpenAI(
    api_key=os.environ["TOKENLAB_API_KEY"],
    base_url=os.environ["BASE_URL"],
    timeout=30.0,
    max_retries=0,  # own the retry decision instead of resending a half-read stream
) as client:
    completed, saw_output = False, False
    with client.responses.create(
        model=os.environ["MODEL"],
        input="Reply with one short sentence about retries.",
        stream=True,
    ) as stream:
        for event in stream:
            if event.type == "response.output_text.delta":
                saw_output = True
                print(event.delta, end="", flush=True)
            elif event.type == "response.completed":
                completed = True
            elif event.type in {"response.failed", "response.incomplete", "error"}:
                raise RuntimeError(f"{event.type} after_output={saw_output}")
    if not completed:
        raise RuntimeError(f"stream closed before response.completed, after_output={saw_output}")
    print()
