"""The lab measures what it says: whole turns only, all of a system's processes, and targets that fail visibly."""

from __future__ import annotations

import json
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from xml.etree import ElementTree

import pytest
from websockets.sync.client import connect

from bench.lab import peers
from bench.lab import results as figure
from bench.lab.course import add_peers
from bench.lab.loads import ENTRANTS, GATEWAY, OURS, QUICK, STEADY, door_of, ladder_step, system_of
from bench.lab.placing import Tree
from bench.lab.plot import picture
from bench.lab.programs import (
    CannotMeasure,
    Latency,
    Load,
    Programs,
    Told,
    Upstream,
    compile_programs,
    running_upstream,
)
from bench.lab.report import page
from bench.lab.results import Results, read_results
from bench.lab.rounds import Lab, figures_of
from bench.lab.singles import is_carried
from bench.lab.targets import TARGETS, Target, Verdict, failing

TURN = ("created", "in_progress", "output_item.added", "content_part.added", "output_text.delta")
TURN_END = ("output_text.done", "content_part.done", "output_item.done", "completed")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    try:
        return compile_programs(tmp_path_factory.mktemp("programs"))
    except CannotMeasure as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def upstream(programs: Programs) -> Iterator[Upstream]:
    with running_upstream(programs) as upstream:
        yield upstream


# --- the upstream ---------------------------------------------------------------------------------------------------


def test_the_upstream_streams_a_whole_turn_of_events_over_http(upstream: Upstream) -> None:
    connection = HTTPConnection("127.0.0.1", upstream.port, timeout=10)
    connection.request("POST", "/v1/responses", json.dumps({"model": "m-0-200", "input": "hello"}))
    response = connection.getresponse()
    blocks = response.read().decode().removesuffix("\n\n").split("\n\n")
    connection.close()
    events = [json.loads(block.partition("\ndata: ")[2]) for block in blocks]
    assert response.getheader("content-type") == "text/event-stream; charset=utf-8"
    assert [event["sequence_number"] for event in events] == [*range(208)]
    assert [block.partition("\n")[0] for block in blocks] == [f"event: {event['type']}" for event in events]
    assert {len(block) for block in blocks[4:204]} <= {*range(245, 256)}
    assert events[-1]["response"]["usage"]["output_tokens"] == 200
    assert events[-1]["response"]["id"] == events[0]["response"]["id"]


def test_the_upstream_streams_one_frame_per_event_over_websocket(upstream: Upstream) -> None:
    with connect(f"ws://127.0.0.1:{upstream.port}/v1/responses") as websocket:
        for _ in range(2):
            websocket.send(json.dumps({"type": "response.create", "model": "m-0-1", "input": "hello"}))
            events = [json.loads(websocket.recv(timeout=10)) for _ in range(9)]
            assert [event["type"] for event in events] == [f"response.{name}" for name in (*TURN, *TURN_END)]


def test_an_upstream_tells_how_many_turns_run(programs: Programs, upstream: Upstream) -> None:
    """The held streams of a measurement have all arrived once it says so."""
    options = {"port": upstream.port, "model": "held-240", "connections": 5, "ramp": 0, "seconds": 30}
    with Load(programs, options):
        deadline = time.monotonic() + 10
        while upstream.counts()["running"] != 5:
            assert time.monotonic() < deadline
            time.sleep(0.01)


# --- the load client ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("door", ["http", "websocket"])
@pytest.mark.parametrize("model", ["m-0-1", "m-0-200", "m-2000-20", "stepped-20"])
def test_the_load_client_counts_whole_turns(programs: Programs, upstream: Upstream, door: str, model: str) -> None:
    options = {"port": upstream.port, "door": door, "model": model, "connections": 3, "turns": 2, "ramp": 0}
    with Load(programs, options | {"step": upstream.port}) as load:
        told = load.result()
    events = int(model.rpartition("-")[2]) + 8
    assert (told.turns, told.events, told.failed) == (6, 6 * events, 0)
    assert told.event.p50 is not None
    assert told.event.p50 < 1000


def test_only_what_comes_in_the_window_counts(programs: Programs, upstream: Upstream) -> None:
    edges: list[str] = []
    options = {"port": upstream.port, "model": "m-0-1", "connections": 2, "warm": 0.1, "seconds": 0.2, "ramp": 0}
    with Load(programs, options) as load:
        told = load.result(lambda: edges.append("begin"), lambda: edges.append("end"))
    assert edges == ["begin", "end"]
    assert 0 < told.turns < upstream.counts()["turns"]


def events_of(names: Sequence[str]) -> list[bytes]:
    """As blocks of SSE, numbered by their place in a whole turn."""
    whole = [*TURN, *TURN_END]
    texts = [f'{{"type":"response.{name}","delta":"@0@","sequence_number":{whole.index(name)}}}' for name in names]
    return [f"data: {text}\n\n".encode() for text in texts]


@contextmanager
def answering(body: bytes) -> Iterator[int]:
    """A port where each request gets these bytes behind the head of a chunked response, once."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + body)

        thread = threading.Thread(target=answer)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(10)


def chunked(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (*parts, b""))


WHOLE = events_of([*TURN, *TURN_END])


def played(programs: Programs, body: bytes) -> Told:
    with answering(body) as port, Load(programs, {"port": port, "model": "m-0-1", "turns": 1, "ramp": 0}) as load:
        return load.result()


@pytest.mark.parametrize("cut", [1, 7, 60, 4096])
def test_a_turn_counts_however_it_is_cut_into_chunks(programs: Programs, cut: int) -> None:
    """Systems under measurement may cut a stream anew, as they may on a wire."""
    stream = b"".join(WHOLE)
    told = played(programs, chunked(*(stream[at : at + cut] for at in range(0, len(stream), cut))))
    assert (told.turns, told.failed, told.why) == (1, 0, "")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        pytest.param(chunked(*WHOLE[:4], *WHOLE[5:]), "expected response.output_text.delta", id="an event is missing"),
        pytest.param(chunked(*WHOLE[:1], *WHOLE), "expected response.in_progress", id="an event comes twice"),
        pytest.param(chunked(*WHOLE[:3], WHOLE[4], WHOLE[3], *WHOLE[5:]), "content_part.added", id="out of order"),
        pytest.param(chunked(*WHOLE[:-1]), "before its last event", id="the last event is missing"),
        pytest.param(chunked(*WHOLE)[:-5], "the connection ended", id="the last chunk is missing"),
        pytest.param(b"not a chunk\r\n", "no size of a chunk", id="no chunks"),
    ],
)
def test_a_turn_fails_that_is_not_whole(programs: Programs, body: bytes, why: str) -> None:
    """A gateway that merges or drops events must not look cheap."""
    told = played(programs, body)
    assert (told.turns, told.failed) == (0, 1)
    assert why in told.why


def test_without_a_compiler_the_bench_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotMeasure, match="no C compiler"):
        compile_programs(tmp_path)


# --- processes ------------------------------------------------------------------------------------------------------

BUSY_CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[Tree]:
    """A process that does nothing, with a child that is never done."""
    tree = Tree([sys.executable, "-c", BUSY_CHILD], tmp_path / "log")
    yield tree
    tree.end()


def cpu_seconds_within(tree: Tree, seconds: float) -> float:
    before = tree.cpu_seconds()
    time.sleep(seconds)
    return tree.cpu_seconds() - before


def test_a_systems_time_and_memory_are_those_of_all_its_processes(busy: Tree) -> None:
    deadline = time.monotonic() + 20
    while len(busy.pids()) < 2 or cpu_seconds_within(busy, 0.1) == 0:
        assert time.monotonic() < deadline
    assert busy.memory_bytes() > 2 * 4_000_000


def test_a_system_that_is_not_under_test_uses_nothing(busy: Tree) -> None:
    deadline = time.monotonic() + 20
    while len(busy.pids()) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    busy.freeze()
    time.sleep(0.1)
    assert cpu_seconds_within(busy, 0.3) == 0


def test_a_system_ends_with_all_its_processes(busy: Tree) -> None:
    time.sleep(0.2)
    pids = busy.pids()
    busy.end()
    deadline = time.monotonic() + 20
    while any(map(is_alive, pids)):  # a grandchild is gone when its own heir has looked
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return re.search(r"^State:\s+Z", status, re.MULTILINE) is None


# --- targets and the page -------------------------------------------------------------------------------------------

AT_MOST = Target("at most", lambda results: results.median("x", "short", "f"), 2.0, 1.5)
AT_LEAST = Target("at least", lambda results: results.median("x", "short", "f"), 5.0, 7.0, is_least=True)
ONLY_A_GOAL = Target("goal", lambda results: results.median("x", "short", "f"), None, 1.0)


@pytest.mark.parametrize(
    ("target", "value", "verdict"),
    [
        (AT_MOST, 1.5, Verdict.GOAL),
        (AT_MOST, 1.51, Verdict.MUST),
        (AT_MOST, 2.0, Verdict.MUST),
        (AT_MOST, 2.01, Verdict.FAILS),
        (AT_MOST, None, Verdict.UNMEASURED),
        (AT_LEAST, 7.0, Verdict.GOAL),
        (AT_LEAST, 6.99, Verdict.MUST),
        (AT_LEAST, 5.0, Verdict.MUST),
        (AT_LEAST, 4.99, Verdict.FAILS),
        (ONLY_A_GOAL, 1.0, Verdict.GOAL),
        (ONLY_A_GOAL, 1.01, Verdict.SEEN),
    ],
)
def test_a_target_is_met_up_to_its_bound(target: Target, value: float | None, verdict: Verdict) -> None:
    results = Results()
    results.add("x", "short", {"f": value})
    assert target.verdict(results) is verdict


def measured() -> Results:
    """A run in which the gateway takes twenty times what nginx does for a short turn."""
    results = Results(about={"date": "2026-11-30", "machine": "<fast> & small"}, rounds=3)
    for cost in (0.9, 1.0, 5.0):
        results.add(GATEWAY, "short", {figure.CPU_MS_PER_TURN: cost})
    results.add("nginx", "short", {figure.CPU_MS_PER_TURN: 0.05})
    results.missing.append("smg was not measured, for it cannot be installed:\nno network")
    return results


def test_a_failed_target_and_what_is_missing_stand_on_the_page() -> None:
    text = page(measured(), "speed.svg")
    assert "| short turn in memory, CPU, over nginx | 20.0 × | ≤ 12.0 × | ≤ 7.00 × | **FAILS** |" in text
    assert "- smg was not measured, for it cannot be installed: no network" in text
    assert [target.what for target in failing(measured())] == ["short turn in memory, CPU, over nginx"]


def test_the_page_shows_medians() -> None:
    assert re.search(r"^\| gateway \|.*\| 1\.00 \|", page(measured(), "speed.svg"), re.MULTILINE)


def test_who_fell_behind_is_marked() -> None:
    results = Results()
    for name, pace in (("nginx", 0.95), ("smg", 0.94)):
        results.add(name, "paced64", {figure.CPU_US_PER_EVENT: 30, figure.PACE: pace})
    text = page(results, "speed.svg")
    assert "| nginx | 30.0 |" in text
    assert "| smg | 30.0¹ |" in text


@pytest.mark.parametrize(
    ("events", "p99", "is_held"),
    [(9500, 50.0, True), (9499, 50.0, False), (9500, 50.001, False), (0, None, False)],
)
def test_a_step_of_the_ladder_holds_at_its_pace_and_in_time(events: int, p99: float | None, is_held: bool) -> None:
    latency = Latency(p99, p99, p99, p99)
    told = Told(turns=0, events=events, failed=0, seconds=2.0, event=latency, first=latency, why="")
    assert is_carried(told, ladder_step(100)) is is_held
    assert not is_carried(replace(told, failed=1), ladder_step(100))


def test_a_turns_price_is_that_of_its_events() -> None:
    """A window cuts the turns of a slow system; their events have been paid for."""
    latency = Latency(1.0, 1.0, 1.0, 1.0)
    told = Told(turns=0, events=104, failed=0, seconds=1.0, event=latency, first=latency, why="")
    figures = figures_of(told, 0.001, STEADY["burst16"])
    assert figures[figure.CPU_MS_PER_TURN] == pytest.approx(2.0)
    assert figures[figure.TURNS_PER_CPU_SECOND] == pytest.approx(500)
    assert figures[figure.PACE] is None


def test_the_picture_is_an_image() -> None:
    root = ElementTree.fromstring(picture(measured()))  # our own, a moment ago
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"gateway", "nginx", "0.05", "1.00"} <= {*texts}


def test_figures_are_read_as_they_were_written(tmp_path: Path) -> None:
    measured().write(tmp_path / "speed.json")
    assert read_results(tmp_path / "speed.json") == measured()


def test_each_load_and_each_entrant_is_known() -> None:
    for grid in (ENTRANTS, QUICK):
        assert grid.keys() <= STEADY.keys()
        assert {system_of(name) for names in grid.values() for name in names} <= {*OURS, "no gateway"}
    assert [door_of(name) for name in ENTRANTS["burst16"]] == ["http", "websocket", "http"]
    assert len({target.what for target in TARGETS}) == len(TARGETS)


def test_a_peer_that_cannot_be_installed_is_told(
    monkeypatch: pytest.MonkeyPatch, programs: Programs, tmp_path: Path
) -> None:
    def fail(_folder: Path) -> str:
        raise CannotMeasure("no such package")

    monkeypatch.setattr("bench.lab.course.PEERS", [peers.Peer("smg", fail, peers.caddy)])
    monkeypatch.setattr("bench.lab.course.INSTALLED", tmp_path)
    lab = Lab(programs, tmp_path, 0, 0, Upstream(1), Results(), lambda _text: None)
    add_peers(lab, ["smg"])
    assert lab.results.missing == ["smg was not measured, for it cannot be installed: no such package"]
    assert lab.systems == {}
