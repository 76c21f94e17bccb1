"""What `gateway demo` says, and what it plays."""

import sys
from pathlib import Path

import pytest

from gateway.cli.demo import ANSWER, MISHAPS, demo_acts, demo_config
from gateway.cli.welcome import command_name, welcome
from gateway.upstream.scripted import Break

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def text(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("gateway.cli.welcome.command_name", lambda: "gateway")
    return welcome(demo_config(), "http://127.0.0.1:8080")


def test_it_names_everything_a_client_needs(text: str) -> None:
    lines = text.splitlines()
    assert "  base_url    http://127.0.0.1:8080/v1" in lines
    assert "  api_key     demo-key" in lines
    assert "  model       gpt-demo" in lines
    assert "  WebSocket   ws://127.0.0.1:8080/v1/responses" in lines


def test_its_curl_line_is_whole(text: str) -> None:
    assert (
        "  curl -N http://127.0.0.1:8080/v1/responses -H 'authorization: Bearer demo-key' "
        "-H 'content-type: application/json' \\\n"
        '       -d \'{"model": "gpt-demo", "input": "hello", "stream": true}\'\n'
    ) in text


def test_the_probe_is_told_the_url_only_where_it_is_not_its_default(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    assert "\n  gateway probe\n  gateway probe --websocket\n" in text
    elsewhere = welcome(demo_config(), "http://127.0.0.1:4242")
    assert "\n  gateway probe --url http://127.0.0.1:4242/v1\n" in elsewhere


def test_no_line_is_wider_than_a_terminal_of_120_columns(text: str) -> None:
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("/checkout/gateway/__main__.py", f"{sys.executable} -m gateway"),
        ("/nowhere/bin/gateway", "/nowhere/bin/gateway"),
        ("/no where/bin/gateway", "'/no where/bin/gateway'"),
    ],
)
def test_the_command_is_named_as_it_was_called(program: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [program])
    monkeypatch.setenv("PATH", "")
    assert command_name() == name


def test_a_command_on_the_path_is_named_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gateway").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "gateway")])
    assert command_name() == "gateway"


def test_the_first_upstream_fails_in_several_ways_before_any_output() -> None:
    acts = demo_acts()
    assert set(acts) == {"first", "second"} == set(demo_config().routes)
    sent = [b"".join(step for step in act.reply.steps if isinstance(step, bytes)) for act in MISHAPS]
    assert not any(b"response.output" in data for data in sent)
    assert [act.reply.status for act in MISHAPS] == [200, 200, 503, 200, 200]
    assert [any(isinstance(step, Break) for step in act.reply.steps) for act in MISHAPS].count(True) == 1
    assert [act.reply.refuses for act in MISHAPS].count(True) == 1
    assert len({act.words for act in MISHAPS}) == len(MISHAPS)


def test_the_second_upstream_streams_more_than_20_words() -> None:
    (act,) = demo_acts()["second"]
    deltas = [step for step in act.reply.steps if isinstance(step, bytes) and b"output_text.delta" in step]
    assert len(deltas) == len(ANSWER.split()) > 20
