"""Models and routes in a file of their own (C1): the same tables, told apart by file and key path."""

from pathlib import Path

import pytest

from config.samples import ACCOUNT, ENVIRON, KEY, MODEL, ROUTE, SMALLEST
from gateway import limits
from gateway.config import Candidate, ConfigError, load, load_ledger, load_routes, parse

COLD = 'routes = "routes.toml"\n' + ACCOUNT + KEY
HOT = ROUTE + MODEL


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "gateway.toml").write_text(COLD)
    (tmp_path / "routes.toml").write_text(HOT)
    return tmp_path


def told(folder: Path, candidate: str | None = None) -> list[str]:
    """What is wrong with the files in the folder, which is left out of their names."""
    given = None if candidate is None else Candidate(candidate, "new.toml")
    with pytest.raises(ConfigError) as caught:
        load(folder / "gateway.toml", ENVIRON, given)
    return str(caught.value).replace(f"{folder}/", "").splitlines()


def test_a_named_routes_file_is_as_good_as_tables_of_ones_own(folder: Path) -> None:
    """C1."""
    config = load(folder / "gateway.toml", ENVIRON)
    alone = parse(SMALLEST, file="gateway.toml", environ=ENVIRON, directory=folder)

    assert config == alone
    assert config.table_hash == alone.table_hash
    assert (config.files, alone.files) == ((folder / "gateway.toml", folder / "routes.toml"), ())


def test_all_that_is_wrong_with_both_files_is_told_at_once(folder: Path) -> None:
    """C1."""
    (folder / "gateway.toml").write_text(COLD.replace('"main"\n', '"mian"\nmodels = ["gpt-5"]\n'))
    (folder / "routes.toml").write_text(HOT.replace("https", "ftp").replace('["openai"]', '["opneai"]'))

    assert told(folder) == [
        'gateway.toml: keys.laptop.account: names no account of this file; did you mean "main"?',
        'gateway.toml: keys.laptop.models[0]: names no model of routes.toml; did you mean "gpt-5.6"?',
        "routes.toml: routes.openai.base_url: is not an http:// or https:// URL; "
        'write it like "https://api.openai.com/v1"',
        'routes.toml: models."gpt-5.6".routes[0]: names no route of this file; did you mean "openai"?',
    ]


def test_a_routes_file_that_is_no_toml_hides_nothing_else(folder: Path) -> None:
    (folder / "gateway.toml").write_text(COLD + "[limits]\nturns_max = 0\n")
    (folder / "routes.toml").write_text("[routes.openai\n")

    first, second = told(folder)
    assert first.startswith("gateway.toml: limits.turns_max: ")
    assert second.startswith("routes.toml: line 1, column 15: is not valid TOML")


def test_tables_of_the_wrong_file_are_sent_home(folder: Path) -> None:
    (folder / "gateway.toml").write_text(COLD + MODEL)
    (folder / "routes.toml").write_text(HOT + "[server]\nport = 1\n[modles.m]\n")

    assert told(folder) == [
        "gateway.toml: models: stands apart from the routes, which are in a file of their own; "
        "move it to routes.toml, or write the routes here too",
        'routes.toml: modles: is not a known key; did you mean "models"?',
        "routes.toml: server: belongs in gateway.toml; move it there: it is read when the gateway starts",
    ]


def test_an_empty_routes_file_lacks_what_serves_anybody(folder: Path) -> None:
    (folder / "routes.toml").write_text("")

    assert told(folder) == [
        "routes.toml: routes: is missing; add a table [routes.NAME]",
        'routes.toml: models: is missing; add a table [models."NAME"]',
    ]


def test_the_name_of_the_file_stands_above_all_tables() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(ACCOUNT + KEY + 'routes = "routes.toml"', file="gateway.toml", environ=ENVIRON, directory=Path())

    assert str(caught.value).splitlines()[0] == (
        "gateway.toml: keys.laptop.routes: is not a known key; it belongs above the first [table] of gateway.toml"
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "routes.toml: does not exist or is no regular file; create it, or correct `routes`"),
        (b"\xff\n", "routes.toml: line 1: is not UTF-8 text; save the file as UTF-8"),
        (b"#" * (limits.ROUTES_FILE_BYTES_MAX + 1), "routes.toml: is larger than 1048576 bytes; name the file"),
    ],
)
def test_a_routes_file_that_cannot_be_read_is_told(folder: Path, content: bytes | None, words: str) -> None:
    (folder / "routes.toml").unlink()
    if content is not None:
        (folder / "routes.toml").write_bytes(content)

    (line,) = told(folder)
    assert line.startswith(words)


def test_a_routes_file_of_the_largest_size_is_read(folder: Path) -> None:
    (folder / "routes.toml").write_text(HOT.ljust(limits.ROUTES_FILE_BYTES_MAX, "\n"))

    assert load(folder / "gateway.toml", ENVIRON).routes.keys() == {"openai"}


def test_a_file_may_not_name_itself_nor_a_routes_file_another(folder: Path) -> None:
    """A cycle of files would be read for ever."""
    (folder / "routes.toml").write_text('routes = "gateway.toml"\n' + MODEL)
    assert told(folder)[0].startswith("routes.toml: routes: must be a table; ")
    (folder / "gateway.toml").write_text(COLD.replace("routes.toml", "gateway.toml"))
    assert told(folder) == [
        "gateway.toml: routes: names this very file; name another file, or write the tables [routes.NAME] here"
    ]


def test_secret_files_of_a_routes_file_lie_beside_it(folder: Path) -> None:
    (folder / "inner").mkdir()
    (folder / "inner/key").write_text("of-the-file\n")
    (folder / "inner/routes.toml").write_text(HOT.replace('{ env = "OPENAI_API_KEY" }', '{ file = "key" }'))
    (folder / "gateway.toml").write_text(COLD.replace("routes.toml", "inner/routes.toml"))

    assert load(folder / "gateway.toml", ENVIRON).routes["openai"].credential == "of-the-file"


def test_a_candidate_is_judged_in_the_place_of_the_file(folder: Path) -> None:
    candidate = Candidate(HOT.replace("gpt-5.6", "gpt-5.7"), "new.toml")
    assert load(folder / "gateway.toml", ENVIRON, candidate).models.keys() == {"gpt-5.7"}
    assert load(folder / "gateway.toml", ENVIRON).models.keys() == {"gpt-5.6"}
    assert told(folder, ROUTE) == ['new.toml: models: is missing; add a table [models."NAME"]']
    assert told(folder, "#" * (limits.ROUTES_FILE_BYTES_MAX + 1))[0].startswith("new.toml: is larger than ")
    (folder / "gateway.toml").write_text(SMALLEST)
    assert told(folder, HOT)[0].startswith("new.toml: would take the place of no file; move routes and models from ")


def test_a_routes_file_is_checked_alone_too(tmp_path: Path) -> None:
    alone = load_routes(Candidate(HOT, "r.toml"), ENVIRON, tmp_path)

    assert alone == parse(SMALLEST, file="", environ=ENVIRON, directory=tmp_path).table_hash
    with pytest.raises(ConfigError, match=r"r\.toml: models: is missing"):
        load_routes(Candidate(ROUTE, "r.toml"), ENVIRON, tmp_path)


def test_who_reads_the_books_needs_no_routes_file(folder: Path) -> None:
    (folder / "routes.toml").unlink()
    (folder / "gateway.toml").write_text(COLD + '[ledger]\npath = "books.sqlite"\n')

    assert load_ledger(folder / "gateway.toml", {}).path == str(folder / "books.sqlite")


# --- which table it is ------------------------------------------------------------------------------------------


def hash_with(text: str = SMALLEST, **environ: str) -> str:
    return parse(text, file="", environ={**ENVIRON, **environ}, directory=Path()).table_hash


def test_a_tables_hash_is_that_of_what_it_says() -> None:
    """C2: wording, comments and the order of tables do not count, nor what is no route and no model."""
    other_words = SMALLEST.replace('"free"', '{ input = "0", output = "0" }').replace("[routes", "# a word\n[routes")

    assert len(hash_with()) == 64
    assert hash_with(other_words) == hash_with(MODEL + ROUTE + KEY + ACCOUNT) == hash_with()
    assert hash_with(SMALLEST + "[limits]\nturns_max = 7\n") == hash_with()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"free"', '{ input = "1", output = "1" }'),
        ("api.openai.com", "api.openai.test"),
        ('"free"', '"free"\nresponse_timeout = 601'),
        ('"free"', '"free"\nheaders = { "openai-project" = "p" }'),
        ('routes = ["openai"]', 'routes = ["openai"]\nmax_output_tokens = 7'),
        ("gpt-5.6", "gpt-5.7"),
    ],
)
def test_whatever_a_table_says_changes_its_hash(old: str, new: str) -> None:
    assert hash_with(SMALLEST.replace(old, new)) != hash_with()


def test_a_rotated_secret_changes_the_hash_and_is_not_told_by_it() -> None:
    """C2: of all secrets there are, one in 65,536 gives the same hash, so that it confirms no guess."""
    assert hash_with(OPENAI_API_KEY="rotated") != hash_with()
    some = {hash_with(OPENAI_API_KEY=f"secret-{number}") for number in range(2000)}
    assert len(some) < 2000


# --- how many workers it is for ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("concurrency", "workers"), [(1, 1), (2, 2), (3, 2), (256, 256)])
def test_a_routes_concurrency_may_be_one_for_each_worker(folder: Path, concurrency: int, workers: int) -> None:
    """C6."""
    (folder / "routes.toml").write_text(ROUTE + f"concurrency = {concurrency}\n" + MODEL)
    config = load(folder / "gateway.toml", ENVIRON, workers=workers)
    assert config.routes["openai"].attempts_max == concurrency


@pytest.mark.parametrize(("concurrency", "workers"), [(1, 2), (3, 4), (255, 256)])
def test_a_concurrency_that_leaves_a_worker_without_a_place_is_refused_with_all_the_rest(
    folder: Path, concurrency: int, workers: int
) -> None:
    """C6, C1: one for each would be more than there may be; none would have some workers refuse turns for ever."""
    route = ROUTE + f"concurrency = {concurrency}\nstate = 7\n"
    expected = (
        f"routes.openai.concurrency: is {concurrency}, less than one for each of {workers} workers, which share it; "
        f"write {workers} or more, or serve with --workers {concurrency}"
    )
    (folder / "routes.toml").write_text(route + MODEL)
    with pytest.raises(ConfigError) as caught:
        load(folder / "gateway.toml", ENVIRON, workers=workers)
    assert [str(problem).removeprefix(f"{folder}/routes.toml: ") for problem in caught.value.problems][1:] == [expected]
    with pytest.raises(ConfigError) as caught:
        load_routes(Candidate(route + MODEL, "new.toml"), ENVIRON, folder, workers=workers)
    assert str(caught.value.problems[-1]) == f"new.toml: {expected}"
    (folder / "gateway.toml").write_text(ACCOUNT + KEY + route + MODEL)
    with pytest.raises(ConfigError) as caught:
        load(folder / "gateway.toml", ENVIRON, workers=workers)
    assert str(caught.value.problems[-1]).endswith(expected)
