"""What the README says of clients is the matrix."""

from clients.readme_table import BEGIN, END, README, shown, with_table
from clients.situations import SITUATIONS
from clients.table import CLIENTS, EXPECTED, Cannot
from e2e.scenarios import PARTIAL_TEXT, TEXT


def test_the_readme_has_the_table_of_the_matrix() -> None:
    readme = README.read_text("utf-8")
    assert (readme.count(BEGIN), readme.count(END)) == (1, 1)
    assert readme == with_table(readme), "run `deploy/test --clients`"


def test_the_matrix_is_total() -> None:
    """Each client in each situation: a result, or why there is none."""
    assert list(EXPECTED) == list(SITUATIONS)
    assert {situation: set(row) for situation, row in EXPECTED.items()} == {name: set(CLIENTS) for name in SITUATIONS}


def test_where_nothing_fails_every_client_shows_everything() -> None:
    """The README's sentence: no brackets, no cell without a play."""
    whole = [EXPECTED[name] for name, situation in SITUATIONS.items() if not situation.code]
    assert not [cell for row in whole for cell in row.values() if isinstance(cell, Cannot) or "[" in "".join(cell)]


def test_a_cell_is_told_in_words() -> None:
    assert shown((TEXT, TEXT)) == "answer (2)"
    assert shown((f"{PARTIAL_TEXT}[error code]",)) == "its beginning, `error`"
    assert shown(("[error code]", TEXT)) == "`error`, answer"
    assert shown(Cannot("it does not")) == "– (it does not)"
