import traceback
from pathlib import Path

import pytest

from config.samples import ENVIRON, SMALLEST, key, parsed, problems
from gateway.config import ConfigError, parse


def test_a_secret_file_is_found_beside_the_configuration_and_stripped(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(" from-a-file\r\n")

    assert parsed(key('secret = { file = "key" }'), tmp_path).keys[0].secret == "from-a-file"


def test_an_absolute_secret_file_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("from-a-file")

    assert parsed(key(f'secret = {{ file = "{tmp_path}/key" }}')).keys[0].secret == "from-a-file"


def test_inline_secrets_need_the_switch() -> None:
    inline = key('secret = { inline = "s3cret" }')

    assert parsed("[server]\nallow_inline_secrets = true\n" + inline).keys[0].secret == "s3cret"
    assert problems(inline) == [
        "gateway.toml: keys.laptop.secret: has its secret in the file itself, which is not allowed; "
        'write { env = "NAME" } or { file = "PATH" }, or set server.allow_inline_secrets = true'
    ]


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ('{ env = "UNSET" }', "the environment's UNSET is unset or empty"),
        ('{ env = "s3cret-client" }', "the environment's variable it names is unset or empty"),
        ('{ file = "absent" }', "its file does not exist or is not a regular file"),
        ('{ file = "." }', "its file does not exist or is not a regular file"),
        ('{ file = "\\u0000" }', "its file does not exist or is not a regular file"),
        ('{ file = "empty" }', "its secret is empty"),
        ('{ file = "two-lines" }', "its secret holds characters that a header cannot carry"),
        ('{ file = "binary" }', "its secret holds characters that a header cannot carry"),
        ('{ file = "large" }', "its file is larger than 65536 bytes"),
        ("{}", "names 0 sources instead of one"),
        ('{ env = "A", file = "b" }', "names 2 sources instead of one"),
        ('"s3cret-client"', "is plain text in place of a secret's source"),
        ("7", "must be a table"),
    ],
)
def test_a_secret_that_is_not_there_is_a_problem(source: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text(" \n")
    (tmp_path / "two-lines").write_text("s3cret\nclient")
    (tmp_path / "binary").write_bytes(b"\xff\xfes\x003\x00")
    (tmp_path / "large").write_bytes(b"x" * 65537)

    (line,) = problems(key(f"secret = {source}"), tmp_path)

    assert line.startswith(f"gateway.toml: keys.laptop.secret: {problem}; ")


def test_an_empty_environment_variable_is_a_missing_secret() -> None:
    with pytest.raises(ConfigError, match="GATEWAY_KEY is unset or empty; set it before the gateway starts"):
        parse(SMALLEST, file="gateway.toml", environ=ENVIRON | {"GATEWAY_KEY": " "}, directory=Path())


def test_an_empty_inline_secret_is_a_problem() -> None:
    text = "[server]\nallow_inline_secrets = true\n" + key('secret = { inline = "" }')

    assert problems(text) == ["gateway.toml: keys.laptop.secret: its secret is empty; put the secret in its place"]


def test_a_secret_that_cannot_be_read_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_path: Path, _mode: str) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "key").write_text("x")
    monkeypatch.setattr(Path, "open", refuse)

    assert problems(key('secret = { file = "key" }'), tmp_path) == [
        "gateway.toml: keys.laptop.secret: its file cannot be read (Permission denied); "
        "let the gateway's user read that file"
    ]


def test_secrets_show_in_no_repr() -> None:
    config = parsed(SMALLEST)

    assert "s3cret" not in repr(config)
    assert (config.keys[0].secret, config.routes["openai"].credential) == ("s3cret-client", "s3cret-upstream")


def test_secrets_in_the_wrong_places_show_in_no_error() -> None:
    text = """
    [server]
    allow_inline_secrets = true
    host = ["s3cret"]
    start = "s3cret"
    secret = "s3cret"
    port = "s3cret"
    [accounts.main]
    balance = "s3cret"
    [keys.laptop]
    account = "s3cret"
    secret = { inline = "s3cret with spaces", key = "s3cret" }
    [routes.openai]
    base_url = "https://s3cret:s3cret@host/v1?key=s3cret"
    transport = "s3cret"
    credential = "s3cret"
    model = "s3cret s3cret"
    retryable_codes = "s3cret"
    headers = { "authorization" = "s3cret", "x-a" = "s3cret\\n" }
    price = "s3cret"
    [models.m]
    routes = ["s3cret"]
    """
    with pytest.raises(ConfigError) as caught:
        parsed(text)

    told = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert "s3cret" not in told
    assert (caught.value.__context__, caught.value.__cause__) == (None, None)
    assert len(caught.value.problems) == 16


def test_a_connection_string_may_have_spaces_and_is_one_line() -> None:
    """libpq's own form: `host=db dbname=books password='a b'`."""
    ledger = """
[ledger]
store = "postgres"
dsn = { env = "GATEWAY_DSN" }
"""
    two_lines = parse_problems(SMALLEST + ledger, GATEWAY_DSN="host=db\ndbname=s3cret")

    assert dsn_of(SMALLEST + ledger, GATEWAY_DSN=" host=db password='s3 cret' ") == "host=db password='s3 cret'"
    assert two_lines == [
        "gateway.toml: ledger.dsn: its secret has more than one line, or control characters; write it on one line"
    ]


def dsn_of(text: str, **environ: str) -> str | None:
    return parse(text, file="gateway.toml", environ=ENVIRON | environ, directory=Path()).ledger.dsn


def parse_problems(text: str, **environ: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        dsn_of(text, **environ)
    return str(caught.value).splitlines()
