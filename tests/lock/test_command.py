"""`gateway lock`: what it says, and with which exit code."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.cli import gateway
from gateway.cli.lock import SHOWN_IN_FULL_MAX
from gateway.lock import player
from gateway.lock.pack import Pack, checkout
from lock.packs import NAMES, small_pack

R9, R15 = NAMES


@pytest.fixture(name="pack")
def a_pack(tmp_path: Path) -> Pack:
    return small_pack(tmp_path)


def run(pack: Pack, *arguments: str) -> Result:
    return CliRunner().invoke(gateway, ["lock", "--fixtures", str(pack.root), *arguments])


def lines(result: Result) -> list[str]:
    return result.output.splitlines()


def test_check_says_that_all_is_as_recorded(pack: Pack) -> None:
    result = run(pack, "check")
    assert (result.exit_code, result.output) == (
        0,
        "2 scenarios behave as recorded, and every fixture is as declared\n",
    )


def test_check_plays_those_that_are_named(pack: Pack) -> None:
    assert lines(run(pack, "check", R9)) == ["1 scenarios behave as recorded, and every fixture is as declared"]


def test_check_names_what_it_finds_and_fails(pack: Pack) -> None:
    pack.transcript(R9).unlink()
    result = run(pack, "check")
    assert result.exit_code == 1
    assert lines(result) == [
        f"{R9}.json: is missing; 0001-a-change.toml declares it",
        f"{R9}.json: is missing; `gateway lock record {R9}` writes it",
    ]


@pytest.mark.parametrize("command", ["check", "record", "show"])
def test_a_scenario_that_is_not_there_is_told(pack: Pack, command: str) -> None:
    result = run(pack, command, "nobody")
    assert (result.exit_code, lines(result)) == (
        2,
        ["there is no scenario 'nobody'; `gateway lock list` shows them"],
    )


@pytest.mark.parametrize("command", ["check", "list"])
def test_a_folder_without_scenarios_is_told(tmp_path: Path, command: str) -> None:
    result = run(Pack(tmp_path), command)
    assert (result.exit_code, lines(result)) == (2, [f"there are no scenarios in {tmp_path / 'lock'}"])


def test_list_shows_each_scenario_with_its_rules(pack: Pack) -> None:
    assert lines(run(pack, "list"))[:2] == [
        f"{R15}  [R15, L1]",
        "    A stream that breaks before its first event is run once more, on the other route.",
    ]


def test_show_is_the_scenario_and_its_picture(pack: Pack) -> None:
    result = run(pack, "show", R15)
    assert 'article = "a read error before the first event"' in result.output
    assert "3.5        b       a: stream_read_error, R15 replay, b:" in result.output


# --- record -----------------------------------------------------------------------------------------------------


def test_record_wants_to_know_what(pack: Pack) -> None:
    assert run(pack, "record").exit_code == 2


def test_record_of_what_is_as_declared_declares_nothing(pack: Pack) -> None:
    assert lines(run(pack, "record", "--all")) == ["every fixture is as declared: there is nothing to declare"]


def test_record_writes_the_transcript_and_prints_the_declaration(pack: Pack) -> None:
    shutil.copy(pack.scenario(R9), pack.scenario("another"))
    result = run(pack, "record", "another")
    hashes = pack.hashes()
    assert result.exit_code == 0
    assert f'"another.json" = "{hashes["another.json"]}"' in lines(result)
    assert lines(result)[-2:] == [f'"another.{kind}" = "{hashes[f"another.{kind}"]}"' for kind in ("json", "toml")]
    assert run(pack, "check").exit_code == 1


def test_record_may_write_the_declaration_with_its_reason(pack: Pack) -> None:
    shutil.copy(pack.scenario(R9), pack.scenario("another"))
    words = ("--declare", "another-one", "--why", 'It is "needed".', "--changelog", "One more.")
    assert run(pack, "record", "another", *words).exit_code == 0
    assert (pack.declarations / "0003-another-one.toml").is_file()
    assert run(pack, "check").exit_code == 0


def test_a_declaration_without_a_reason_is_not_written(pack: Pack) -> None:
    result = run(pack, "record", "--all", "--declare", "x")
    assert (result.exit_code, lines(result)) == (
        2,
        ["a declaration needs its reason and its line in the changelog: add --why and --changelog"],
    )


@pytest.mark.parametrize(
    ("slug", "why", "text"),
    [
        ("../../evil", "It is needed.", "One more."),
        ("", "It is needed.", "One more."),
        ("Foo Bar", "It is needed.", "One more."),
        ("x", " ", "One more."),
        ("x", "It is needed.", " "),
        ("x", "It is needed.", "One\nmore."),
    ],
)
def test_what_a_declaration_cannot_be_is_refused_before_anything_is_written(
    pack: Pack, slug: str, why: str, text: str
) -> None:
    shutil.copy(pack.scenario(R9), pack.scenario("another"))
    before = sorted(pack.root.parent.rglob("*"))
    result = run(pack, "record", "another", "--declare", slug, "--why", why, "--changelog", text)
    assert (result.exit_code, len(lines(result))) == (2, 1)
    assert sorted(pack.root.parent.rglob("*")) == before


def test_record_fails_and_declares_nothing_where_the_doors_are_not_alike(pack: Pack) -> None:
    file = pack.scenario(R9)
    file.write_text(file.read_text("utf-8").split("[differs]")[0], encoding="utf-8")
    result = run(pack, "record", R9, "--declare", "x", "--why", "It is needed.", "--changelog", "One more.")
    assert (result.exit_code, (pack.declarations / "0003-x.toml").exists()) == (1, False)
    assert f"not alike: {R9}.toml: the doors differ in the column 'client', and `differs` does not say why" in lines(
        result
    )


def test_a_scenario_with_a_mistake_is_told_with_its_place(pack: Pack) -> None:
    pack.scenario("broken").write_text("abut = 1", encoding="utf-8")
    result = run(pack, "record", "broken")
    assert (result.exit_code, lines(result)) == (
        2,
        [
            "broken.toml: about: is missing; add it",
            "broken.toml: rules: is missing; add it",
            'broken.toml: abut: is not a known key; did you mean "about"?',
        ],
    )


# --- mutate -----------------------------------------------------------------------------------------------------


def test_mutate_names_what_caught_each_mutant(pack: Pack) -> None:
    assert lines(run(pack, "mutate", "--only", "R15: nothing")) == [
        "caught    R15: nothing is ever replayed",
        f"          by {R15}, http client, http upstream, http money, http records",
        "1 mutants, each caught by a scenario",
    ]


def test_mutate_lists_survivors_and_fails(pack: Pack) -> None:
    """This small pack does not know what a first-event timeout is."""
    result = run(pack, "mutate", "--only", "R5: a first-event", "--jobs", "1")
    assert (result.exit_code, lines(result)) == (1, ["SURVIVED  R5: a first-event timeout is replayed"])


def test_mutate_lists_its_mutants(pack: Pack) -> None:
    assert "R5: a first-event timeout is replayed" in lines(run(pack, "mutate", "--list"))


def test_a_mutant_that_is_not_there_is_told(pack: Pack) -> None:
    result = run(pack, "mutate", "--only", "no such flip")
    assert (result.exit_code, lines(result)) == (2, ["no mutant's name holds 'no such flip'; --list shows them"])


def test_the_workers_of_mutate_end_with_it(pack: Pack) -> None:
    """They hold its output open, so that ends when the last of them has."""
    command = [sys.executable, "-m", "gateway", "lock", "--fixtures", str(pack.root), "mutate", "--jobs", "2"]
    with subprocess.Popen([*command, "--only", "R"], stdout=subprocess.PIPE, cwd=checkout()) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == -signal.SIGTERM
        process.communicate(timeout=10)


def test_an_interrupted_mutate_says_so_in_a_line(pack: Pack) -> None:
    """Its process group gets the signal, as from a terminal."""
    command = [sys.executable, "-m", "gateway", "lock", "--fixtures", str(pack.root), "mutate", "--jobs", "2"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*command, "--only", "R"],  # so many that the signal finds it at work
        stdout=pipe,
        stderr=pipe,
        cwd=checkout(),
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=10)
    said = [line for line in errors.decode().splitlines() if line and not line.startswith("SURVIVED")]
    assert (process.returncode, said) == (1, ["Aborted!"])


def test_an_interrupted_check_says_so_in_a_line(pack: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trio hands Ctrl-C on in a group."""

    async def interrupted(*_arguments: object) -> None:
        raise BaseExceptionGroup("as a nursery does", [KeyboardInterrupt()])

    monkeypatch.setattr(player, "_perform", interrupted)
    result = run(pack, "check")
    assert (result.exit_code, result.output.strip()) == (1, "Aborted!")


@pytest.mark.parametrize(
    "command",
    [["check"], ["check", "--config", str(checkout() / "deploy" / "demo.toml")], ["record", "--all"]],
    ids=["check", "check --config", "record"],
)
@pytest.mark.parametrize(("seconds", "is_told"), [(0.0, True), (600.0, False)], ids=["slow", "quick"])
def test_it_is_told_how_far_it_is(
    pack: Pack, command: list[str], seconds: float, *, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside what it finds: that may be read by a program."""
    monkeypatch.setattr("gateway.cli.lock.PROGRESS_SECONDS", seconds)
    result = run(pack, *command)
    assert result.exit_code == 0
    assert ("1 of 2 scenarios are played" in result.stderr.splitlines()) is is_told
    assert "are played" not in result.stdout


# --- check --config ---------------------------------------------------------------------------------------------

DEMO = Path(__file__).parents[2] / "deploy" / "demo.toml"


def test_a_configuration_is_played_and_read_not_judged(pack: Pack) -> None:
    result = run(pack, "check", "--config", str(DEMO))
    assert (result.exit_code, lines(result)) == (
        0,
        [
            "the routes of 'gpt-demo' stand for a scenario's: a is first, b is second",
            "not taken over: accounts and balances, keys and their limits, prices and max_output_tokens, names, "
            "addresses, headers and credentials of upstreams, transports, how routes share the turns, where and how it "
            "listens, the ledger",
            "",
            "0 of 2 scenarios go another way than by default",
        ],
    )


def their_file(tmp_path: Path, *routes: str, first_event_timeout: int) -> Path:
    lines = ["[server]", "allow_inline_secrets = true", "[accounts.x]", 'balance = "unlimited"', "[keys.x]"]
    lines += ['account = "x"', 'secret = { inline = "other-key" }']
    for route in routes:
        lines += [f"[routes.{route}]", f'base_url = "http://{route}.test/v1"', 'credential = "none"', 'price = "free"']
        lines += [f"first_event_timeout = {first_event_timeout}"]
    lines += ["[models.theirs]", f"routes = {json.dumps(routes)}"]
    file = tmp_path / "their.toml"
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def test_it_is_said_which_of_their_routes_are_used_and_which_not(pack: Pack, tmp_path: Path) -> None:
    file = their_file(tmp_path, "near", "far", "farther", first_event_timeout=60)
    assert lines(run(pack, "check", "--config", str(file)))[:2] == [
        "the routes of 'theirs' stand for a scenario's: a is near, b is far",
        "not used: farther",
    ]


def test_it_is_said_that_a_model_with_one_route_never_replays(pack: Pack, tmp_path: Path) -> None:
    """And so it is seen (R14)."""
    file = their_file(tmp_path, "near", first_event_timeout=60)
    shown = lines(run(pack, "check", "--config", str(file), R15))
    assert shown[:2] == [
        "the routes of 'theirs' stand for a scenario's: a is near",
        "a scenario's b is missing, and 'theirs' with its one route never replays (R14)",
    ]
    assert "1 of 1 scenarios go another way than by default" in shown


def test_what_goes_another_way_is_counted_by_rule_and_the_first_are_shown(pack: Pack, tmp_path: Path) -> None:
    file = their_file(tmp_path, "near", "far", first_event_timeout=3)
    for number in range(SHOWN_IN_FULL_MAX + 1):
        shutil.copy(pack.scenario(R15), pack.scenario(f"copy-{number:02}"))
        shutil.copy(pack.transcript(R15), pack.transcript(f"copy-{number:02}"))
    shown = lines(run(pack, "check", "--config", str(file)))
    count = SHOWN_IN_FULL_MAX + 2
    assert f"{count} of {len(pack.names)} scenarios go another way than by default" in shown
    assert f"by rule: R15 {count}, L1 {count}" in shown
    assert len([line for line in shown if line.endswith("on the other route.")]) == SHOWN_IN_FULL_MAX
    assert shown[-3:] == ["and, each to be shown when it is named:", "    copy-20", f"    {R15}"]


def test_a_configuration_that_cannot_be_used_is_told(pack: Pack, tmp_path: Path) -> None:
    file = tmp_path / "their.toml"
    file.write_text("[serve]\n", encoding="utf-8")
    result = run(pack, "check", "--config", str(file))
    assert result.exit_code == 2
    assert f'{file}: serve: is not a known key; did you mean "server"?' in lines(result)


def test_a_model_that_they_do_not_have_is_told(pack: Pack) -> None:
    result = run(pack, "check", "--config", str(DEMO), "--model", "gpt-nobody")
    assert (result.exit_code, lines(result)) == (
        2,
        [f"{DEMO}: there is no model 'gpt-nobody'; it has: gpt-demo, gpt-5.6-terra"],
    )


def test_a_model_of_no_configuration_is_told(pack: Pack) -> None:
    result = run(pack, "check", "--model", "gpt-demo")
    assert (result.exit_code, lines(result)) == (
        2,
        ["--model says of which model of a configuration the routes are; name that file with --config"],
    )


# --- table ------------------------------------------------------------------------------------------------------


def test_the_replay_table_may_be_printed(pack: Pack) -> None:
    assert lines(run(pack, "table", "--print"))[2] == "| R1 | `client_disconnected` | the client left | no |"


def test_the_pages_of_other_fixtures_are_written_into_their_folder_and_nothing_else_is(pack: Pack) -> None:
    documents = [checkout() / name for name in ("README.md", "CHANGELOG.md")]
    before = [file.read_bytes() for file in documents]
    notes = pack.pages / "notes.txt"
    pack.pages.mkdir()
    notes.write_text("anybody's", encoding="utf-8")
    result = run(pack, "table")
    assert (result.exit_code, lines(result)) == (0, [f"written: {R15}.md", f"written: {R9}.md"])
    assert [file.read_bytes() for file in documents] == before
    assert notes.exists()
