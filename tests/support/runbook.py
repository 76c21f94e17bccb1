"""The part of the runbook that the code makes: `python tests/support/runbook.py` (or `poe runbook`) writes it.

Every bound of gateway/limits.py with the reason that stands beside it, and the key of the configuration that moves it;
and those of the server, which stand beside the code that keeps them.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

from pydantic.fields import FieldInfo

from gateway import limits
from gateway.config.profiles import PROFILES
from gateway.config.tables import SHARED, ModelTable, RouteTable

REPOSITORY = Path(__file__).parents[2]
RUNBOOK = REPOSITORY / "deploy/runbook.md"
LIMITS = REPOSITORY / "gateway/limits.py"
SERVER = REPOSITORY / "gateway/server"
TABLES = REPOSITORY / "gateway/config/tables.py"
START = "<!-- limits: made from gateway/limits.py by `poe runbook` -->\n"
END = "<!-- end of limits -->\n"
ROUTES_START = "<!-- routes: made from gateway/config/tables.py by `poe runbook` -->\n"
ROUTES_END = "<!-- end of routes -->\n"

SECTIONS = {"Server": "server", "Limits": "limits", "RouteTable": "routes.NAME"}
"""Which table of the file a class of gateway/config/tables.py is."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Constants that share a reason."""

    names: tuple[str, ...]
    reason: str


def bounds() -> Iterator[Bounds]:
    """The constants of gateway/limits.py, in their order."""
    yield from _bounds(LIMITS, lambda name: name != "MIB")


def server_bounds() -> Iterator[tuple[Path, Bounds]]:
    """The server's constants that are bounds, by their names."""
    for path in sorted(SERVER.rglob("*.py")):
        yield from ((path, found) for found in _bounds(path, lambda name: name.endswith("_MAX")))


def _bounds(path: Path, is_bound: Callable[[str], bool]) -> Iterator[Bounds]:
    """A reason stands behind its constant, or behind the last of several that share it."""
    names: list[str] = []
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and is_bound(node.target.id):
            names.append(node.target.id)
            continue
        if names and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield Bounds(tuple(names), " ".join(str(node.value.value).split()))
        names = []


def keys() -> Mapping[str, str]:
    """Which key of the configuration has which constant as its default."""
    moved: dict[str, str] = {}
    for table in ast.parse(TABLES.read_text(encoding="utf-8")).body:
        if not isinstance(table, ast.ClassDef) or table.name not in SECTIONS:
            continue
        for field in table.body:
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and field.value is not None:
                share = " ÷ N" if field.target.id in SHARED else ""
                moved |= dict.fromkeys(_defaults(field.value), f"`{SECTIONS[table.name]}.{field.target.id}`{share}")
    return moved


def _defaults(value: ast.expr) -> Iterator[str]:
    """The constant that a field's default is, also within `Field(default=…)`."""
    given = [value]
    if isinstance(value, ast.Call):
        given = [keyword.value for keyword in value.keywords if keyword.arg == "default"]
    for default in given:
        if isinstance(default, ast.Attribute) and isinstance(default.value, ast.Name) and default.value.id == "limits":
            yield default.attr


def limits_table() -> str:
    """The limits as Markdown."""
    moved = keys()
    rows = ["| limit | value | moved by | why |", "|---|---|---|---|"]
    for bound in bounds():
        movers = "<br>".join(moved.get(name, "–") for name in bound.names)
        rows.append(f"| {_names(bound)} | {_values(bound, limits)} | {movers} | {_reason(bound)} |")
    rows += ["", "Of the server, beside the code that keeps them:", ""]
    rows += ["| limit | value | in `gateway/server/` | why |", "|---|---|---|---|"]
    for path, bound in server_bounds():
        module = import_module(".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__"))
        where = path.relative_to(SERVER).as_posix()
        rows.append(f"| {_names(bound)} | {_values(bound, module)} | `{where}` | {_reason(bound)} |")
    return "\n".join(rows) + "\n"


def _names(bound: Bounds) -> str:
    return "<br>".join(f"`{name}`" for name in bound.names)


def _values(bound: Bounds, module: ModuleType) -> str:
    return "<br>".join(_written(name, getattr(module, name)) for name in bound.names)


def _reason(bound: Bounds) -> str:
    return bound.reason.replace("|", "\\|")


def _written(name: str, value: float) -> str:
    """A value with the unit that its constant's name ends in."""
    words = name.lower().split("_")
    if "seconds" in words:
        return f"{value:g} s"
    if "bytes" not in words:
        return f"{value:,}"
    if "second" in words:
        return f"{value:,} bytes/s"
    return f"{value // limits.MIB:g} MiB" if value % limits.MIB == 0 else f"{value:,} bytes"


def routes_table() -> str:
    """The keys of a routes file as Markdown: what each says, what it is if left out, and what profiles say instead."""
    rows = ["| in `[routes.NAME]` | left out | what it says |", "|---|---|---|"]
    rows += [_key_row(name, field, _by_profile(name)) for name, field in RouteTable.model_fields.items()]
    rows += ["", "| in `[models.NAME]` | left out | what it says |", "|---|---|---|"]
    rows += [_key_row(name, field, "") for name, field in ModelTable.model_fields.items()]
    return "\n".join(rows) + "\n"


def _key_row(name: str, field: FieldInfo, by_profile: str) -> str:
    left_out = "must be there" if field.is_required() else f"`{_toml(field.default)}`"
    if name in ("retryable_codes", "headers"):
        left_out = "rule 5's own" if name == "retryable_codes" else "none"
    said = field.description or (field.examples or [""])[0]
    return f"| `{name}` | {left_out}{by_profile} | {str(said).replace('|', chr(92) + '|')} |"


def _by_profile(name: str) -> str:
    said = [f"{profile}: `{_toml(found[name])}`" for profile, found in PROFILES.items() if name in found]
    return "".join(f"<br>{one}" for one in said)


def _toml(value: object) -> str:
    if value is None:
        return "none"
    return json.dumps(value)


def with_limits(text: str) -> str:
    """The runbook's text with the tables as they must be. ValueError if their marks are missing."""
    return _between(_between(text, START, END, limits_table()), ROUTES_START, ROUTES_END, routes_table())


def _between(text: str, start: str, end: str, made: str) -> str:
    before, _, rest = text.partition(start)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"the marks are missing: {start.strip()} … {end.strip()}")
    return before + start + made + end + after


if __name__ == "__main__":
    RUNBOOK.write_text(with_limits(RUNBOOK.read_text(encoding="utf-8")), encoding="utf-8")
