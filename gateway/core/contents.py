"""What a request holds below its top-level members: one walk over the parsed values, whatever is asked of them.

The answers decide whether a turn may be replayed (S4 to S6) and what it may cost (B4). A body of 32 MiB may hold a
million values, so each is looked at once, by its exact type, and nothing is done for a value that says nothing.

    input, tools  --measured and sought--+--> below a schema: measured only
                                         +--> below what is encoded: sought only
    instructions, text, prompt  --> measured only        background_options  --> sought only

What the input holds is told by itself, too: a continuation from memory has its own and what went before (W10).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gateway.core.marks import REQUEST_MARKS_MAX, marks_of_input
from gateway.core.money import InputMeasure

ORIGIN_BOUND_KEYS: Final = frozenset(
    {
        "encrypted_content",
        "file_id",
        "file_ids",
        "container_id",
        "vector_store_ids",
        "skill_id",
        "connector_id",
        "tunnel_id",
        "fingerprint",
        "continuation_id",
    }
)
"""S5: members of `input` or `tools` that only the account which made their value can resolve."""
CONTAINER: Final = "container"
"""S5: bound if it names one, which it need not."""
SCHEMA_KEYS: Final = frozenset({"parameters", "schema", "input_schema", "output_schema", "json_schema"})
"""S5: below these stand descriptions of data, not data."""
SIDE_EFFECT_TOOLS: Final = frozenset({"mcp", "code_interpreter"})
"""S6: hosted tools that write; the hosted `shell` is told from the client's own by its environment."""

ENCODED_KEYS: Final = frozenset({"image_url", "file_url", "file_data", "data", "result", "encrypted_content"})
"""B4: members that hold base64 or a link: never counted as text."""
IMAGE_TYPES: Final = frozenset({"input_image", "computer_screenshot", "image_generation_call"})
FILE_TYPES: Final = frozenset({"input_file", "input_audio"})

INPUT: Final = "input"
READ_AND_BOUND: Final = (INPUT, "tools")
"""Members whose strings a model reads (B4) and where bound keys are looked for (S5)."""
READ_ONLY: Final = ("instructions", "text", "prompt")
"""Members whose strings a model reads."""
BOUND_ONLY: Final = ("background_options",)
"""S5: where `continuation_id` stands."""

_BINDING: Final = ORIGIN_BOUND_KEYS | {CONTAINER}
_TELLING: Final = _BINDING | SCHEMA_KEYS | ENCODED_KEYS
"""An object without any of these keys has nothing but values."""
_FLAT_TYPES: Final = IMAGE_TYPES | FILE_TYPES
_NONE: Final[list[Any]] = []
_EMPTY: Final = InputMeasure(0)


@dataclass(frozen=True, slots=True)
class Part:
    """What was found in one part of a request."""

    is_origin_bound: bool = False
    """S4, S5: something in it can be resolved by its origin alone."""
    has_side_effect_tool: bool = False
    """S6: in its tools, in those that a tool search found, and in groups of either."""
    measure: InputMeasure = _EMPTY
    """B4: what it gives a model to read."""
    marks: tuple[str, ...] = ()
    """O3: what the items of a bound request are known by, the newest first."""

    def behind(self, earlier: Part) -> Part:
        """Both in one, `earlier` before this one."""
        return Part(
            is_origin_bound=self.is_origin_bound or earlier.is_origin_bound,
            has_side_effect_tool=self.has_side_effect_tool or earlier.has_side_effect_tool,
            measure=_sum(self.measure, earlier.measure),
            marks=(*self.marks, *earlier.marks)[:REQUEST_MARKS_MAX],
        )


def _sum(one: InputMeasure, other: InputMeasure) -> InputMeasure:
    return InputMeasure(one.text_bytes + other.text_bytes, one.images + other.images, one.files + other.files)


NOTHING: Final = Part()


@dataclass(frozen=True, slots=True)
class Contents(Part):
    """What was found in a request."""

    of_input: Part = NOTHING
    """What was found in its input alone."""


def contents_of(fields: Mapping[str, Any]) -> Contents:
    """Look through a request's members, as a JSON decoder made them."""
    items = _items(fields.get(INPUT))
    is_bound_there, measure = _looked_through(
        [fields[name] for name in READ_AND_BOUND if name == INPUT and name in fields]
    )
    others = [fields[name] for name in READ_AND_BOUND if name != INPUT and name in fields]
    is_bound_beside, beside = _looked_through(others, _named(fields, READ_ONLY), _named(fields, BOUND_ONLY))
    is_bound_there = is_bound_there or any(map(_refers_to_item, items))
    is_bound = is_bound_there or is_bound_beside or _names_prompt(fields.get("prompt"))
    is_continued = fields.get("conversation") is not None
    of_input = Part(
        is_origin_bound=is_bound_there,
        has_side_effect_tool=_any_writes([item["tools"] for item in items if "tools" in item]),
        measure=measure,
        marks=marks_of_input(items) if is_bound or is_continued else (),
    )
    writes = of_input.has_side_effect_tool or _any_writes([fields.get("tools")])
    return Contents(is_bound, writes, _sum(beside, measure), of_input.marks, of_input)


def continued(contents: Contents, earlier: Part, beside: Part = NOTHING) -> Contents:
    """W10: the contents of a request when `earlier` stands before its input, and `beside` among its other members."""
    return _with_input(contents.behind(earlier).behind(beside), contents.of_input.behind(earlier))


def _with_input(whole: Part, of_input: Part) -> Contents:
    return Contents(whole.is_origin_bound, whole.has_side_effect_tool, whole.measure, whole.marks, of_input)


def _looked_through(both: list[Any], read: list[Any] = _NONE, sought: list[Any] = _NONE) -> tuple[bool, InputMeasure]:
    """Walk what is measured and sought, with what is `read` or `sought` only: whether it is bound, and its measure."""
    found = _Findings()
    measure = _walk([both], _TELLING, found.read_and_sought) if both else _EMPTY
    if read or found.below_schemas:
        measure = _sum(measure, _walk([read, found.below_schemas], ENCODED_KEYS, _read))
    if sought or found.below_encoded:
        _walk([sought, found.below_encoded], _BINDING | SCHEMA_KEYS, found.sought)
    return found.is_bound, measure


def _named(fields: Mapping[str, Any], names: Iterable[str]) -> list[Any]:
    return [fields[name] for name in names if name in fields]


# --- the walk (B4, S5) ------------------------------------------------------------------------------------------


def _walk(
    pending: list[Any], telling: frozenset[str], values_of: Callable[[dict[str, Any]], list[Any]]
) -> InputMeasure:
    """Walk lists and objects, and measure. `values_of` says which values of an object with a telling key are walked."""
    text_bytes = 0
    flat: list[str] = []
    while pending:
        current = pending.pop()
        if type(current) is dict:
            label = current.get("type")
            if type(label) is str and label in _FLAT_TYPES:
                flat.append(label)
            current = current.values() if telling.isdisjoint(current) else values_of(current)
        for value in current:
            kind = type(value)
            if kind is str:
                text_bytes += len(value) if value.isascii() else _utf8_bytes(value)
            elif value and (kind is dict or kind is list):
                pending.append(value)
    if not flat:
        return InputMeasure(text_bytes)
    images = sum(label in IMAGE_TYPES for label in flat)
    return InputMeasure(text_bytes, images, len(flat) - images)


class _Findings:
    """What the walk comes upon besides text."""

    def __init__(self) -> None:
        self.is_bound = False
        self.below_schemas: list[Any] = []
        """Values that are only read."""
        self.below_encoded: list[Any] = []
        """Values that are only looked through for bound keys."""

    def read_and_sought(self, held: dict[str, Any]) -> list[Any]:
        """S5, B4."""
        self._note(held)
        both = []
        for name, value in held.items():
            if name in SCHEMA_KEYS:
                self.below_schemas.append(value)
            elif name in ENCODED_KEYS:
                self.below_encoded.append(value)
            else:
                both.append(value)
        return both

    def sought(self, held: dict[str, Any]) -> list[Any]:
        """S5."""
        self._note(held)
        return [value for name, value in held.items() if name not in SCHEMA_KEYS]

    def _note(self, held: dict[str, Any]) -> None:
        if not (self.is_bound or _BINDING.isdisjoint(held)):
            self.is_bound = any(_binds(name, value) for name, value in held.items())


def _read(held: dict[str, Any]) -> list[Any]:
    """B4."""
    return [value for name, value in held.items() if name not in ENCODED_KEYS]


def _binds(name: str, held: Any) -> bool:
    if held is None:
        return False
    if name == CONTAINER:
        return isinstance(held, str) or (isinstance(held, dict) and held.get("id") is not None)
    return name in ORIGIN_BOUND_KEYS


def _utf8_bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


# --- items (S4, S5) ---------------------------------------------------------------------------------------------


def _names_prompt(prompt: Any) -> bool:
    return isinstance(prompt, dict) and prompt.get("id") is not None


def _items(held: Any) -> list[dict[str, Any]]:
    """The input's items that say anything; a text has none."""
    return [item for item in (held if isinstance(held, list) else [held]) if item and type(item) is dict]


def _refers_to_item(item: dict[str, Any]) -> bool:
    """An `item_reference` (also without its type), or a reasoning item whose content only its origin holds."""
    if item.get("id") is None:
        return item.get("type") == "item_reference"
    if item.get("type") is None:
        return item.get("role") is None and item.get("content") is None
    return item["type"] == "item_reference" or (item["type"] == "reasoning" and not item.get("content"))


# --- tools (S6) -------------------------------------------------------------------------------------------------


def _any_writes(pending: list[Any]) -> bool:
    while pending:
        tools = pending.pop()
        for tool in tools if isinstance(tools, list) else ():
            if not tool or type(tool) is not dict:
                continue
            if _writes(tool):
                return True
            if "tools" in tool:
                pending.append(tool["tools"])
    return False


def _writes(tool: dict[str, Any]) -> bool:
    kind = tool.get("type")
    if kind == "shell":
        environment = tool.get("environment")
        return not (isinstance(environment, dict) and environment.get("type") == "local")
    return isinstance(kind, str) and kind in SIDE_EFFECT_TOOLS
