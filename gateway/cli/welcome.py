"""What `gateway demo` says first: what runs here, and how to point a client at it."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import Final

from gateway.config import Config

DEFAULT_PORT_URL: Final = "http://127.0.0.1:8080"
"""Where `gateway probe` looks if it is told nothing."""

WELCOME: Final = """
The gateway listens on {url}, in front of two demo upstreams:

  first     {first}   fails before its first output, each time in another way
  second    {second}   answers

Ask it, and see one clean answer every time:

  curl -N {base_url}/responses -H 'authorization: Bearer {key}' -H 'content-type: application/json' \\
       -d '{{"model": "{model}", "input": "hello", "stream": true}}'

Or see what came when, and what was held for how long, from another terminal:

  {probe}
  {probe} --websocket

Or point the OpenAI SDK at it:

  from openai import OpenAI
  client = OpenAI(base_url="{base_url}", api_key="{key}", max_retries=0)
  for event in client.responses.create(model="{model}", input="hello", stream=True):
      print(event.type)

  base_url    {base_url}
  api_key     {key}
  model       {model}
  WebSocket   {websocket_url}/responses

Below: what each upstream does, then the gateway's own line for the turn. Ctrl-C ends it all.
"""


def welcome(config: Config, url: str) -> str:
    """The text, for a gateway at `url`."""
    base_url = f"{url}/v1"
    return WELCOME.format(
        url=url,
        base_url=base_url,
        websocket_url=base_url.replace("http", "ws", 1),
        first=config.routes["first"].base_url,
        second=config.routes["second"].base_url,
        key=config.keys[0].secret,
        model=next(iter(config.models)),
        probe=f"{command_name()} probe" + ("" if url == DEFAULT_PORT_URL else f" --url {base_url}"),
    )


def command_name() -> str:
    """How this program was called, so that the reader can call it the same way."""
    program = Path(sys.argv[0])
    if program.name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m gateway"
    is_on_path = shutil.which(program.name) == str(program)
    return program.name if is_on_path else shlex.quote(str(program))
