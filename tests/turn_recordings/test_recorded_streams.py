"""Recorded upstream streams, played through both doors: what real upstreams sent reaches a client to the byte (E10).

The recordings are not the project's own; the environment variable RESPONSES_STREAMS names the folder they lie in.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.lock.virtual import virtual_run
from gateway.upstream.scripted import Reply
from support.gateways import play, world

VARIABLE = "RESPONSES_STREAMS"
FOLDER = os.environ.get(VARIABLE, "")
RECORDINGS = sorted(Path(FOLDER).glob("*.sse")) if FOLDER else []
assert bool(RECORDINGS) is bool(FOLDER), f"{VARIABLE} names a folder without recordings: {FOLDER!r}"
BLOCK = re.compile(rb".*?(?:\r\n|\r|\n){2}", re.DOTALL)
DATA = re.compile(rb"^data: ?(.*)$", re.MULTILINE)
TERMINAL = re.compile(rb'"type": ?"response\.(?:completed|incomplete|failed|cancelled)"')
SIZES = (1, 64, 1460, 65_536)
"""How many bytes come at once, at most: from a byte to all of it."""
PIECES_MAX = 1000
"""A long recording comes in larger pieces: what matters is where it is cut, and that differs each time."""

pytestmark = [
    pytest.mark.trio(run=virtual_run),
    pytest.mark.skipif(not FOLDER, reason=f"{VARIABLE} names no folder of recorded streams"),
    pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.stem),
    pytest.mark.parametrize("size", SIZES),
]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """The log is not printed."""
    with capture_logs():
        yield


def events_of(recording: Path) -> list[bytes]:
    """The blocks of the recording's events, up to its terminal one."""
    blocks: list[bytes] = []
    for block in BLOCK.findall(recording.read_bytes().rstrip() + b"\n\n"):
        blocks.append(block)
        if TERMINAL.search(block) is not None:
            break
    return blocks


def reply_of(recording: Path, size: int) -> Reply:
    """The recording as an upstream that sends it in pieces of random sizes."""
    data = recording.read_bytes()
    chance = random.Random(f"{recording.name} {size}")
    largest = max(size, 2 * len(data) // PIECES_MAX)
    steps: list[bytes] = []
    while data:
        cut = chance.randint(1, largest)
        steps.append(data[:cut])
        data = data[cut:]
    return Reply(steps)


async def test_over_http_the_body_is_the_recording_s_events(recording: Path, size: int) -> None:
    """E10: block by block."""
    client = await play(world(reply_of(recording, size)), "http")

    assert client.status == 200
    assert client.body == b"".join(events_of(recording))


async def test_on_a_websocket_the_frames_are_the_recording_s_payloads(recording: Path, size: int) -> None:
    """E10, E6: the `data` of each event; of a failure told twice the `response.failed` alone."""
    client = await play(world(reply_of(recording, size)), "websocket")
    payloads = [b"\n".join(DATA.findall(block)) for block in events_of(recording)]
    told_by_its_failed = b'"type":"response.failed"' in payloads[-1]

    assert [data for _, data in client.pieces] == [
        payload for payload in payloads if not (told_by_its_failed and payload.startswith(b'{"type":"error"'))
    ]
