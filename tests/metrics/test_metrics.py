"""What is counted of a turn, seen through the whole app: read from the exposition, as Prometheus reads it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from gateway.core.messages import AttemptReport, Door
from gateway.core.routing import in_order
from gateway.lock.driver import connect, post
from gateway.lock.virtual import virtual_run
from gateway.measures import Meter, NoMeter, TurnMeasures
from gateway.metrics import PrometheusMeter, outcome_label
from gateway.upstream.scripted import Break, Silence
from support.gateways import MODEL, World, create, create_frame, play, turn, world
from support.virtual import in_every_order
from support.voices import A, B

FIRST_EVENT_AT, OUTPUT_AT, END_AT = 0.5, 2.5, 4.0
PACED = A.reply(FIRST_EVENT_AT, A.prelude, OUTPUT_AT - FIRST_EVENT_AT, A.delta(), END_AT - OUTPUT_AT, A.completed())

LABELS = ("worker", "door", "route", "outcome", "reason", "code")
"""The order in which a sample's labels are written here; Prometheus has none."""


def samples(w: World) -> dict[str, float]:
    """All samples of the gateway's own metrics that are not 0, each by its name with its labels, without buckets."""
    families = text_string_to_metric_families(w.gateway.meter.exposition().decode())
    return {
        _written(sample.name, sample.labels): sample.value
        for family in families
        for sample in family.samples
        if sample.value and sample.name.startswith("gateway_") and not sample.name.endswith(("_bucket", "_created"))
    }


def _written(name: str, labels: dict[str, str]) -> str:
    return " ".join([name.removeprefix("gateway_"), *(labels[label] for label in LABELS if label in labels)])


@in_every_order
async def test_a_turn_is_counted_once_with_its_times_and_its_money(door: str) -> None:
    w = world(PACED)
    await play(w, door)
    assert samples(w) == {
        "worker 0": 1,
        "route_table": 1,
        f"turns_total {door} completed none": 1,
        "attempts_total a completed": 1,
        "settled_nanodollars_total": 7000,
        f"turn_seconds_count {door}": 1,
        f"turn_seconds_sum {door}": END_AT,
        f"hold_seconds_count {door}": 1,
        f"hold_seconds_sum {door}": OUTPUT_AT - FIRST_EVENT_AT,
        f"first_output_seconds_count {door}": 1,
        f"first_output_seconds_sum {door}": OUTPUT_AT,
        "first_event_seconds_count a": 1,
        "first_event_seconds_sum a": FIRST_EVENT_AT,
    }


@in_every_order
async def test_a_replay_shows_the_failed_attempt_and_one_hold(door: str) -> None:
    """T1: the hold of a turn runs on across its replay."""
    w = world(A.reply(1.0, A.failed()), B.answer(3.0))
    await play(w, door)
    seen = samples(w)
    assert (seen["replays_total a"], seen["attempts_total a server_error"], seen["attempts_total b completed"]) == (
        1,
        1,
        1,
    )
    assert seen[f"turns_total {door} completed none"] == 1
    assert seen[f"hold_seconds_sum {door}"] == 3.0


@in_every_order
async def test_a_failure_is_counted_with_its_reason(door: str) -> None:
    w = world(A.reply(A.prelude, A.delta(), Break()))
    await play(w, door)
    assert samples(w)[f"turns_total {door} stream_read_error output_delivered"] == 1


@in_every_order
async def test_a_hold_is_no_longer_than_it_may_be(door: str) -> None:
    """T1: after ten seconds the events are out, though the output is not."""
    w = world(A.reply(A.prelude, 60.0, A.delta(), A.completed()))
    await play(w, door)
    assert samples(w)[f"hold_seconds_sum {door}"] == 10.0


@in_every_order
async def test_a_turn_whose_first_event_is_output_is_held_for_no_time(door: str) -> None:
    """T1; and times count from the turn's beginning, whenever that was."""
    w = world(A.reply(1.0, A.delta(), 1.0, A.completed()))
    await trio.sleep(7.0)
    await play(w, door, begins_at=7.0)
    seen = samples(w)
    assert (seen[f"hold_seconds_count {door}"], seen.get(f"hold_seconds_sum {door}", 0.0)) == (1, 0.0)
    assert (seen[f"first_output_seconds_sum {door}"], seen[f"turn_seconds_sum {door}"]) == (1.0, 2.0)


@in_every_order
async def test_what_never_began_to_be_held_is_no_hold(door: str) -> None:
    w = world(A.reply(refuses=True))
    await play(w, door)
    assert f"hold_seconds_count {door}" not in samples(w)


@pytest.mark.trio(run=virtual_run)
async def test_one_body_is_not_held() -> None:
    """H1, T1: it comes whole at its end, whatever the upstream's events before."""
    w = world(PACED)
    await play(w, "http", stream=False)
    seen = samples(w)
    assert (seen["turn_seconds_sum http"], "hold_seconds_count http" in seen) == (END_AT, False)


async def _refused(w: World, door: str, **fields: object) -> None:
    if door == "http":
        await post(w.app, create(**fields))
        return
    async with connect(w.app, "websocket") as client:
        client.send_text(create_frame(**fields))
        await client.wait_for(lambda client: client.has_last_word)
        client.leave()


@in_every_order
async def test_a_refusal_is_counted_by_its_code_and_is_no_turn(door: str) -> None:
    w = world(A.answer())
    await _refused(w, door, model="gpt-unknown")
    await _refused(w, door, previous_response_id="resp_unknown")
    assert samples(w) == {
        "worker 0": 1,
        "route_table": 1,
        f"refusals_total {door} model_not_found": 1,
        f"refusals_total {door} previous_response_not_found": 1,
    }


@pytest.mark.trio(run=virtual_run)
async def test_a_refused_upgrade_is_counted() -> None:
    w = world(A.answer())
    async with connect(w.app, "websocket", headers=()):
        pass
    assert samples(w)["refusals_total websocket invalid_api_key"] == 1


@pytest.mark.trio(run=virtual_run)
async def test_what_the_app_refuses_before_any_door_is_counted_too() -> None:
    w = world(A.answer())
    async with connect(w.app, "http", "/v1/nothing", method="GET"):
        pass
    assert samples(w)["refusals_total http invalid_request"] == 1


@in_every_order
async def test_gauges_tell_what_is_open_now(door: str) -> None:
    w = world(A.reply(A.prelude, Silence()), server="drain_timeout = 3")
    async with turn(w, door):
        await trio.sleep(1.0)
        sockets = {"open_websockets": 1.0} if door == "websocket" else {}
        held = {"open_turns": 1.0, "open_connections": 1.0, "open_attempts a": 1.0}
        assert samples(w) == {"worker 0": 1, "route_table": 1, **held, **sockets}
        w.gateway.drain()
        assert samples(w)["draining"] == 1
    left = {name for name in samples(w) if name.startswith("open_")}
    assert left == set()


@pytest.mark.trio(run=virtual_run)
async def test_creates_that_wait_are_seen() -> None:
    w = world(A.reply(A.prelude, 5.0, A.delta(), A.completed()))
    async with connect(w.app, "websocket") as client:
        for _ in range(3):
            client.send_text(create_frame())
        await trio.sleep(1.0)
        assert samples(w)["waiting_creates"] == 2
        client.leave()
    assert "waiting_creates" not in samples(w)


@pytest.mark.parametrize(
    ("outcome", "label"),
    [("completed", "completed"), ("server_draining", "server_draining"), ("made-up by an upstream", "other")],
)
def test_an_upstreams_own_words_make_no_series(outcome: str, label: str) -> None:
    assert outcome_label(outcome) == label


@pytest.mark.parametrize("meter", [NoMeter(), PrometheusMeter("3")], ids=["none", "prometheus"])
def test_every_meter_takes_what_the_engine_tells(meter: Meter) -> None:
    """ports.Meter."""
    meter.refused(Door.HTTP, "invalid_json")
    meter.attempt_ended("a", AttemptReport("completed", started_at=0.0, ended_at=1.0))
    meter.turn_ended(TurnMeasures(Door.HTTP, "completed", None, 1.0, None, None, None))


def test_a_worker_and_its_process_are_named() -> None:
    text = PrometheusMeter("3").exposition().decode()
    assert 'gateway_worker{worker="3"} 1.0' in text
    assert "process_resident_memory_bytes" in text
    assert "process_open_fds" in text


@in_every_order
async def test_a_routes_health_is_seen(door: str) -> None:
    """C3, C6."""
    slow = A.reply(1.0, A.prelude, A.delta(), A.completed())
    w = world([A.status(429, headers=(("retry-after", "10"),)), slow], B.answer())
    await play(w, door)
    assert samples(w)["route_cooling a"] == 1
    assert samples(w)["route_coolings_total a"] == 1
    async with connect(w.app, "http", body=json.dumps(create()).encode()):
        await trio.sleep_until(10.0)
    async with connect(w.app, "http", body=json.dumps(create()).encode()):
        await trio.sleep(0.5)
        assert samples(w)["open_attempts a"] == samples(w)["route_cooling a"] == 1
    assert samples(w)["route_probes_total a"] == 1
    assert not samples(w).keys() & {"open_attempts a", "route_cooling a", "route_coolings_total b"}


@pytest.mark.trio(run=virtual_run)
async def test_the_table_that_serves_is_told_by_its_hash_alone() -> None:
    """C2: the one before it is gone."""
    w = world(A.answer(), B.answer())
    model = replace(w.gateway.config.models[MODEL], listed=in_order(["b"]))
    config = replace(w.gateway.config, models={MODEL: model})
    w.gateway.swap(config)
    w.gateway.meter.reloaded("applied")
    told = w.gateway.meter.exposition().decode().splitlines()
    assert [line for line in told if line.startswith("gateway_route_table")] == [
        f'gateway_route_table{{table="{config.table_hash[:12]}"}} 1.0'
    ]
    assert 'gateway_route_reloads_total{result="applied"} 1.0' in told
