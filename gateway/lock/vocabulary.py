"""How a scenario is written: its keys, table by table, as the models that read it have them; the notation of `does`.

[[upstream]]          One answer of a route. Durations are seconds.
  route               "a", "b" or "c", needed: whose answer it is; …
"""

from __future__ import annotations

import inspect
import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gateway.lock import notation
from gateway.lock.scenario import SECTIONS, Scenario

WIDTH: Final = 120
KEY_WIDTH: Final = 20
JSON_WORDS: Final[Mapping[str, str]] = {
    "string": "text",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
    "object": "a table",
}
PLURALS: Final[Mapping[str, str]] = {"text": "texts", "a table": "tables"}
BOUNDS: Final[Mapping[str, str]] = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to"}


def vocabulary() -> str:
    """All of it, as text."""
    lines = ["A scenario is a TOML file NAME.toml in the folder lock.", *_table(Scenario.model_json_schema())]
    for name, section in SECTIONS.items():
        is_list = Scenario.model_fields[name].annotation is not section
        about = " ".join((inspect.getdoc(section) or "").split())
        lines += ["", f"[[{name}]]" if is_list else f"[{name}]", *textwrap.wrap(about, WIDTH)]
        lines += _table(section.model_json_schema())
    lines += ["", "What `does` of an upstream says:", ""]
    return "\n".join(lines) + "\n" + _notation()


def _notation() -> str:
    """What the module that reads it says of it, but for its first paragraph."""
    return (inspect.getdoc(notation) or "").partition("\n\n")[2] + "\n"


def _table(schema: Mapping[str, Any]) -> Iterator[str]:
    needed = schema.get("required", ())
    for name, field in schema["properties"].items():
        words = f"{_kind(field, name)}{_default(field, is_needed=name in needed)}: {field['description']}"
        lines = textwrap.wrap(words, WIDTH - KEY_WIDTH - 2)
        yield f"  {name:{KEY_WIDTH}}{lines[0]}"
        yield from (" " * (KEY_WIDTH + 2) + line for line in lines[1:])


def _kind(field: Mapping[str, Any], name: str = "") -> str:
    if "anyOf" in field:  # None is what stands there if the key is left out
        return _kind(next(one for one in field["anyOf"] if one.get("type") != "null"))
    if "$ref" in field:
        return f"the table [{name}]"
    if field.get("type") == "array":
        items = field["items"]
        return f"tables [[{name}]]" if "$ref" in items else f"a list of {PLURALS.get(_kind(items), _kind(items))}"
    if "enum" in field:
        *others, last = map(json.dumps, field["enum"])
        return f"{', '.join(others)} or {last}"
    if "type" not in field:
        return "steps"
    bounds = [f"{word} {field[key]:,}" for key, word in BOUNDS.items() if key in field]
    return " ".join([JSON_WORDS[field["type"]], *bounds])


def _default(field: Mapping[str, Any], *, is_needed: bool) -> str:
    if is_needed:
        return ", needed"
    default = field.get("default")
    return "" if default in (None, [], {}, "") or "$ref" in field else f", {json.dumps(default)} if left out"
