"""`gateway lock`: what it says, and with which exit code."""

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.cli import gateway
from gateway.lock.pack import Pack
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


def test_a_folder_without_scenarios_is_told(tmp_path: Path) -> None:
    result = run(Pack(tmp_path), "check")
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


def test_record_tells_where_the_doors_are_not_alike(pack: Pack) -> None:
    file = pack.scenario(R9)
    file.write_text(file.read_text("utf-8").split("[differs]")[0], encoding="utf-8")
    assert f"not alike: {R9}.toml: the doors differ in the column 'client', and `differs` does not say why" in lines(
        run(pack, "record", R9)
    )


def test_a_scenario_with_a_mistake_is_told_with_its_place(pack: Pack) -> None:
    pack.scenario("broken").write_text("abut = 1", encoding="utf-8")
    result = run(pack, "record", "broken")
    assert (result.exit_code, lines(result)) == (
        2,
        ["broken.toml: about: is missing; add it", 'broken.toml: abut: is not a known key; did you mean "about"?'],
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
    result = run(pack, "mutate", "--only", "nobody")
    assert (result.exit_code, lines(result)) == (2, ["no mutant's name holds 'nobody'; --list shows them"])


# --- check --config ---------------------------------------------------------------------------------------------

DEMO = Path(__file__).parents[2] / "deploy" / "demo.toml"


def test_a_configuration_is_played_and_read_not_judged(pack: Pack) -> None:
    result = run(pack, "check", "--config", str(DEMO))
    assert (result.exit_code, lines(result)) == (
        0,
        [
            "the routes of 'gpt-demo' stand for a, b: first, second",
            "",
            "0 of 2 scenarios go another way than by default",
        ],
    )


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


# --- table ------------------------------------------------------------------------------------------------------


def test_the_replay_table_may_be_printed(pack: Pack) -> None:
    assert lines(run(pack, "table", "--print"))[2] == "| R1 | `client_disconnected` | the client left | no |"
