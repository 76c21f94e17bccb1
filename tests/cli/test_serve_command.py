"""`gateway serve`, told something that it cannot use: every problem on its line, exit code 2, nothing started."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.cli import gateway
from gateway.cli.configured import read_config, with_server

SMALLEST = """
[accounts.main]
balance = "unlimited"

[keys.main]
account = "main"
secret = { env = "GATEWAY_KEY" }

[routes.only]
base_url = "https://upstream.test/v1"
credential = "none"
price = "free"

[models.gpt]
routes = ["only"]
"""
KEY = {"GATEWAY_KEY": "sk-client"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "gateway.toml"
    path.write_text(SMALLEST, encoding="utf-8")
    return path


def serve(*options: str, **environment: str) -> Result:
    """The command to its end; nothing of the test's own environment."""
    runner = CliRunner(env={"GATEWAY_KEY": None, "GATEWAY_CONFIG": None, **environment})
    return runner.invoke(gateway, ["serve", *options])


def test_each_problem_of_the_file_is_on_its_own_line(file: Path) -> None:
    misspelt = SMALLEST.replace("balance", "balence").replace('price = "free"', "")
    file.write_text(f"[server]\nprot = 8080\n{misspelt}", encoding="utf-8")
    result = serve("--config", str(file))
    assert (result.exit_code, result.stdout) == (2, "")
    lines = result.stderr.splitlines()
    assert f'{file}: server.prot: is not a known key; did you mean "port"?' in lines
    assert f'{file}: accounts.main.balence: is not a known key; did you mean "balance"?' in lines
    assert any(line.startswith(f"{file}: routes.only.price: ") for line in lines)
    assert any(line.startswith(f"{file}: keys.main.secret: ") and "GATEWAY_KEY" in line for line in lines)
    assert all(line.startswith(f"{file}: ") for line in lines)


def test_a_missing_secret_is_named(file: Path) -> None:
    result = serve("--config", str(file))
    assert result.exit_code == 2
    assert result.stderr == (
        f"{file}: keys.main.secret: the environment's GATEWAY_KEY is unset or empty; set it before the gateway starts\n"
    )


def test_workers_cannot_have_their_books_in_memory(file: Path) -> None:
    """C6: each would have its own, and a balance could be spent once for each of them."""
    file.write_text(f'{SMALLEST}\n[ledger]\nstore = "memory"\n', encoding="utf-8")
    result = serve("--config", str(file), "--workers", "2", **KEY)
    assert result.exit_code == 2
    assert result.stderr == (
        f'{file}: ledger.store: is "memory", which each of 2 workers would have for itself; '
        'write "sqlite" or "postgres", or serve with one worker\n'
    )


def test_two_routes_of_one_name_are_named(file: Path) -> None:
    file.write_text(f"{SMALLEST}\n[routes.only]\n", encoding="utf-8")
    result = serve("--config", str(file), **KEY)
    assert result.exit_code == 2
    assert "declares the table routes.only a second time; rename or remove one of the two" in result.stderr


def test_a_missing_file_is_named_and_the_default_one_gets_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked, default = serve("--config", "other.toml"), serve()
    assert (asked.exit_code, default.exit_code) == (2, 2)
    assert asked.stderr == (
        "other.toml: cannot be read (No such file or directory); check the path and its permissions\n"
    )
    assert default.stderr.startswith("gateway.toml: cannot be read")
    assert "`gateway demo` needs none" in default.stderr


def test_the_environment_names_the_file(file: Path) -> None:
    file.write_text("[server]\nprot = 8080\n", encoding="utf-8")
    result = serve(GATEWAY_CONFIG=str(file))
    assert result.exit_code == 2
    assert f"{file}: server.prot: " in result.stderr


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


def test_a_taken_port_is_named_with_the_fix(file: Path, taken_port: int) -> None:
    result = serve("--config", str(file), "--host", "127.0.0.1", "--port", str(taken_port), **KEY)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        f"--host, --port: cannot listen on 127.0.0.1, port {taken_port}: Address already in use; "
        "stop what listens there, or choose another port (0 takes any free one)\n"
    )


def test_a_taken_port_of_the_file_is_named_with_file_and_key(file: Path, taken_port: int) -> None:
    named = f'[server]\nhost = "127.0.0.1"\nport = {taken_port}\n'
    file.write_text(named + file.read_text("utf-8"), "utf-8")
    result = serve("--config", str(file), **KEY)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"{file}: server.host, {file}: server.port: cannot listen on 127.0.0.1, port ")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--port", "65536"], "'--port': 65536 is not in the range 0<=x<=65535"),
        (["--port", "http"], "'--port': 'http' is not a valid integer range"),
        (["--log-format", "xml"], "'--log-format': 'xml' is not one of 'json', 'console'"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(options: list[str], said: str) -> None:
    result = serve(*options)
    assert result.exit_code == 2
    assert said in result.stderr


def test_options_take_the_place_of_the_files_settings(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_KEY", "sk-client")
    config = with_server(read_config(file), host="0.0.0.0", port=0, log_format=None)
    assert (config.server.host, config.server.port, config.server.log_format) == ("0.0.0.0", 0, "json")


@pytest.mark.parametrize("options", [(), ("--workers", "2")])
@pytest.mark.parametrize("host", ["127..0.1", "a" * 64])
def test_a_host_that_is_none_is_named(file: Path, host: str, options: tuple[str, ...]) -> None:
    result = serve("--config", str(file), "--host", host, "--port", "0", *options, **KEY)
    assert result.exit_code == 2
    assert result.stderr == (
        f"--host, --port: cannot listen on {host}, port 0: that is no host name; "
        "choose a host name that resolves, or an address\n"
    )


@pytest.mark.parametrize(
    ("settings", "options", "environment", "said"),
    [
        ("port = 9000\nmetrics_port = 9000", (), {}, "is 9000, and 9000 is served at; "),
        ("metrics_port = 9000", ("--port", "9000"), {}, "is 9000, and 9000 is served at; "),
        ('host = "0.0.0.0"\nport = 9000\nmetrics_port = 9000', (), {}, "is 9000, and 9000 is served at; "),
        ("port = 9003\nmetrics_port = 9000", ("--workers", "4"), {}, "is 9000, and 9003 is served at; "),
        ("metrics_port = 65535", ("--workers", "2"), {}, "is 65535, too high for worker 1; "),
        ("metrics_port = 9000", (), {"GATEWAY_WORKER": "60000"}, "is 9000, too high for worker 60000; "),
    ],
)
def test_a_metrics_port_that_cannot_be_had_is_named(
    file: Path, settings: str, options: tuple[str, ...], environment: dict[str, str], said: str
) -> None:
    file.write_text(f"[server]\n{settings}\n" + file.read_text("utf-8"), "utf-8")
    result = serve("--config", str(file), *options, **KEY, **environment)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"{file}: server.metrics_port: {said}")
    assert "write another port" in result.stderr


@pytest.mark.parametrize("worker", ["abc", "-5", "1e3", "²"])
def test_a_worker_number_that_is_none_is_named(file: Path, worker: str) -> None:
    result = serve("--config", str(file), **KEY, GATEWAY_WORKER=worker)
    assert (result.exit_code, "Traceback" in result.output) == (2, False)
    assert "GATEWAY_WORKER" in result.stderr


@pytest.mark.parametrize(("options", "environment"), [(("--workers", "3"), {}), ((), {"GATEWAY_WORKERS": "3"})])
def test_a_concurrency_of_less_than_one_for_each_worker_is_refused(
    file: Path, options: tuple[str, ...], environment: dict[str, str]
) -> None:
    """C6: told by the supervisor before it starts any, or by each instance of gateway@."""
    file.write_text(file.read_text("utf-8").replace('price = "free"', 'price = "free"\nconcurrency = 2', 1), "utf-8")
    result = serve("--config", str(file), *options, **KEY, **environment)
    assert result.exit_code == 2
    assert "concurrency: is 2, less than one for each of 3 workers, which share it; write 3 or more" in result.stderr
