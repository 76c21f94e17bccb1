"""`gateway demo` as a newcomer meets it: what it prints works as it stands."""

import re
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass

import httpx2
import pytest
import trio

from gateway.cli.demo import ANSWER, MISHAPS
from support.processes import PATIENCE_SECONDS, Process, gateway_process, run


@dataclass(frozen=True)
class Demo:
    """The running demo, and what it printed of itself."""

    process: Process
    printed: str

    def setting(self, name: str) -> str:
        """One line of the settings block."""
        found = re.search(rf"^  {name} +(\S+)$", self.printed, re.MULTILINE)
        assert found is not None, self.printed
        return found[1]


@pytest.fixture(scope="module")
def demo() -> Iterator[Demo]:
    with gateway_process("demo", "--port", "0") as process:
        process.wait_for("listening")
        yield Demo(process, process.output)


@pytest.mark.smoke
@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl on this machine")
def test_the_curl_line_gets_one_clean_answer(demo: Demo) -> None:
    line = re.search(r"^  (curl -N .*\\\n.*)$", demo.printed, re.MULTILINE)
    assert line is not None, demo.printed
    result = run("sh", "-c", line[1])
    assert result.returncode == 0, result.stderr
    types = re.findall(r"^event: (.*)$", result.stdout, re.MULTILINE)
    assert types[:3] == ["response.created", "response.in_progress", "response.output_item.added"]
    assert (types.count("response.created"), types[-1]) == (1, "response.completed")


@pytest.mark.smoke
@pytest.mark.parametrize("options", [[], ["--websocket"]], ids=["http", "websocket"])
def test_the_probe_lines_play_a_turn_that_completes(demo: Demo, options: list[str]) -> None:
    wanted = " ".join(["", *options]) + "$"
    line = next(line.strip() for line in demo.printed.splitlines() if re.search(rf" probe --url \S+{wanted}", line))
    result = run("sh", "-c", line)
    assert result.returncode == 0, result.stderr + result.stdout
    assert "came together with the first output: held at most" in result.stdout
    assert "outcome  response.completed after" in result.stdout
    assert ANSWER[:50] in result.stdout


def test_every_mishap_of_the_first_upstream_ends_in_a_clean_answer(demo: Demo) -> None:
    answers = trio.run(several_turns, demo, len(MISHAPS))
    assert [answer.count("event: response.created\n") for answer in answers] == [1] * len(MISHAPS)
    assert [answer.count("event: response.completed\n") for answer in answers] == [1] * len(MISHAPS)
    for mishap in MISHAPS:
        demo.process.wait_for(re.escape(f"upstream first: {mishap.words}"))


async def several_turns(demo: Demo, count: int) -> list[str]:
    """The bodies of `count` turns at once."""
    bodies: list[str] = []

    async def turn(client: httpx2.AsyncClient) -> None:
        request = {"model": demo.setting("model"), "input": "hello", "stream": True}
        response = await client.post(f"{demo.setting('base_url')}/responses", json=request)
        assert response.status_code == 200, response.text
        bodies.append(response.text)

    headers = {"authorization": f"Bearer {demo.setting('api_key')}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=PATIENCE_SECONDS) as client,
        trio.open_nursery() as nursery,
    ):
        for _ in range(count):
            nursery.start_soon(turn, client)
    return bodies


def test_ctrl_c_ends_it_and_a_taken_upstream_port_does_not_matter(demo: Demo) -> None:
    """The other demo has the ports of demo.toml, or they are taken by something else: a second one runs beside it."""
    with gateway_process("demo", "--port", "0") as second:
        second.wait_for("listening")
        second.signal(signal.SIGINT)
        assert second.wait() == 0
        assert "Traceback" not in second.output


def test_a_taken_gateway_port_is_an_error_that_says_what_to_do(demo: Demo) -> None:
    port = demo.setting("base_url").split(":")[2].split("/")[0]
    with gateway_process("demo", "--port", port) as second:
        assert second.wait() == 2
        assert f"cannot listen on 127.0.0.1, port {port}: " in second.output
        assert "choose another port (0 takes any free one)" in second.output
        assert "Ask it" not in second.output
