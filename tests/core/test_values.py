"""How many values a JSON text holds (H3)."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core import values
from gateway.core.values import holds_more_values

LEAVES = st.none() | st.booleans() | st.integers() | st.text(alphabet='\\",[{n: a\u00e9')
JSON = st.recursive(LEAVES, lambda below: st.lists(below) | st.dictionaries(st.text(alphabet='\\",[{a'), below))


def count(value: Any) -> int:
    """Every value, and one more for each container that has none: a bound is no census."""
    held = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 1 if held is None else 1 + max(1, sum(map(count, held)))


@given(JSON, st.booleans(), st.sampled_from([1, 2, 3, 7, 1000]))
def test_values_are_counted_and_not_what_stands_in_strings(value: Any, escapes: bool, step: int) -> None:
    """However the text is cut into pieces, and however its strings spell their quotes and backslashes."""
    text = json.dumps(value, ensure_ascii=escapes).encode()
    number = count(value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(values, "STEP_BYTES", step)
        assert [holds_more_values(text, most) for most in (number - 1, number)] == [True, False]


@pytest.mark.parametrize("text", [b"", b'"', b'"\\', b'\\"[1,2', b"[[[", b"nonsense", b'{"a":"b', b"\xff,,,"])
def test_any_bytes_are_counted(text: bytes) -> None:
    """What is no JSON is the parser's to refuse."""
    assert not holds_more_values(text, 100)


@pytest.mark.parametrize(
    ("text", "most", "holds_more"),
    [(b" [1,2]", 2, True), (b" [1,2]", 3, False), (b"[[[", 3, True), (b"[[[", 4, False), (b'"[",[', 3, False)],
)
def test_the_bound_is_a_bound_wherever_a_text_begins(text: bytes, most: int, holds_more: bool) -> None:
    """H3: behind a space, and where there is nothing but brackets."""
    assert holds_more_values(text, most) == holds_more
