"""The laws of the house that no linter knows, read from the sources. Each exception is a row with its reason."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 400

PURE_MODULES = {
    # what the core may import of the standard library: values and arithmetic, nothing that looks at the world
    "__future__", "abc", "base64", "binascii", "bisect", "collections", "dataclasses", "decimal", "enum", "fnmatch",
    "fractions", "functools", "hashlib", "heapq", "itertools", "json", "math", "operator", "re", "string", "struct",
    "types", "typing", "unicodedata",
    "email.utils",  # dates of HTTP headers, as text
}  # fmt: skip
FLOORS_BELOW_ALL = ("gateway.core", "gateway.limits")

TASKS_START_IN = {
    "gateway/turn": "a turn's tasks",
    "gateway/server": "the server's workers and the drain",
    "gateway/downstream": "a connection's reader beside its turns",
    "gateway/upstream/scripted.py": "the shipped fake's script runs beside its reader",
    "gateway/upstream/scripted_websocket.py": "the same over WebSocket; in memory its peer is nobody's child",
    "gateway/upstream/library_conversation.py": "the library's reader, which ends with its conversation",
    "gateway/upstream/line.py": "a kept WebSocket outlives the turn that opened it; its pool sees it end",
    "gateway/upstream/sockets.py": "two waits on one socket, of which the first ends the other",
    "gateway/upstream/readiness.py": "one task waits for the sockets of all; it ends with Trio's run",
    "gateway/cli": "commands that serve or watch",
    "gateway/app.py": "the services that live as long as the process",
    "gateway/store/writer.py": "the watch beside the writer, which ends with it",
    "gateway/stores.py": "the writer and what works beside it, as long as the process",
    "gateway/ledger/leases.py": "many leases in one batch of the writer's, awaited together",
    "gateway/lock": "a scenario's clients, and what happens beside them",
}
"""Where a nursery may be opened or a task started, and which."""

CATCHES_EVERYTHING = {
    "gateway/turn/engine.py": "the turn's edge before it runs: a store's bug refuses one turn",
    "gateway/turn/running.py": "the turn's edge: a bug of ours ends one turn, with its money and its record in order",
    "gateway/turn/background.py": "the task's edge: a turn that cannot be asked about is left to the next look",
    "gateway/turn/books.py": "the turn's opening: whatever a store's failure is, nothing stays reserved",
    "gateway/turn/steps.py": "a store's failure, whatever it is, is met by asking again",
    "gateway/server/hardened/connection.py": "the connection's edge: whatever a peer provokes ends its connection only",
    "gateway/server/hardened/exchange.py": "the app's edge: its bug is logged and ends its request, as Hypercorn's is",
    "gateway/lock/driver.py": "the server's place: what the app raises is kept for whoever plays it",
    "gateway/lock/mutating.py": "a mutant may break the gateway in any way: whatever it raises has shown it",
    "gateway/upstream/direct.py": "a connection in nobody's hands yet is closed, whatever happened",
    "gateway/upstream/line.py": "the edge of a connection to an upstream: whatever a peer provokes ends that line only",
    "gateway/upstream/sockets.py": "as direct.py, while TLS shakes hands",
    "gateway/upstream/readiness.py": "what is raised over one socket is raised where its own task waits",
    "gateway/downstream/straight.py": "the request's edge: a failed view is answered by the app's error pages",
    "gateway/downstream/websocket.py": "the connection's edge: a bug of ours closes one connection, with its code",
    "gateway/ledger/leases.py": "the task's edge: a lease that cannot be kept or ended is left to the next look",
    "gateway/store/commit.py": "the operation's edge: what one runs into is its own answer, and keeps no other",
    "gateway/store/writer.py": "the writer's edge: a bug in a batch is a store that is away; nothing is lost",
    "gateway/server/reloading.py": "the reload's edge: a file that brings a bug to light ends no process",
    "gateway/store/retention.py": "the task's edge: what cannot be taken away today must not end the serving",
}
"""Where `except Exception` may stand, and what it is the edge of."""

NAMES_THAT_SAY_NOTHING = {"base", "common", "helper", "helpers", "manager", "managers", "misc", "util", "utils"}

TEXTS = ["gateway", "tests", "deploy", "fixtures", ".ci", "pyproject.toml", ".flake8", "README.md", "CHANGELOG.md"]
TEXT_SUFFIXES = {"", ".cfg", ".conf", ".md", ".mjs", ".py", ".service", ".sh", ".toml"}

IGNORE = re.compile(
    r"#\s*(?:type:\s*ignore(?:\[[^\]]*\])?|(?:ruff:\s*|flake8:\s*)?noqa(?::[\s,]*(?:[A-Z]+[0-9]+[\s,]*)+)?|pragma:\s*no\s\w+)"
    r"[\s#-]*(?P<reason>.*)"
)
"""An ignore and what stands behind it, after a dash or as a second comment."""


def sources(*folders: str) -> list[Path]:
    """The Python files under these folders of the checkout."""
    return sorted(path for folder in folders for path in (REPOSITORY / folder).rglob("*.py"))


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), filename=str(path))


def place(path: Path, node: ast.AST | None = None) -> str:
    """A file or a line of it, as an editor opens it."""
    name = path.relative_to(REPOSITORY).as_posix()
    return name if node is None else f"{name}:{getattr(node, 'lineno', 0)}"


def allowed(path: Path, places: dict[str, str]) -> bool:
    """Whether the file is one of these places or lies in one."""
    return any(path.is_relative_to(REPOSITORY / allowed_place) for allowed_place in places)


# --- the core is pure -------------------------------------------------------------------------------------------------


def core_sources() -> list[Path]:
    return [*sources("gateway/core"), REPOSITORY / "gateway/limits.py"]


def test_the_core_imports_values_and_arithmetic_only() -> None:
    impure = [
        f"{place(path, node)} imports {module}"
        for path in core_sources()
        for node, module in imports(tree_of(path))
        if PURE_MODULES.isdisjoint({module, module.split(".")[0]}) and not module.startswith(FLOORS_BELOW_ALL)
    ]
    assert impure == []


def test_the_core_waits_for_nothing_and_touches_nothing() -> None:
    impure = [
        place(path, node)
        for path in core_sources()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.Global)
        or (isinstance(node, ast.Call) and named(node.func) in {"open", "print", "input", "__import__", "exec", "eval"})
    ]
    assert impure == []


def imports(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Each import of a module, by its dotted name; the house has no relative imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "gateway":
            yield from ((node, f"gateway.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node, "." * node.level + (node.module or "")


def named(function: ast.expr) -> str:
    return function.id if isinstance(function, ast.Name) else ""


# --- tasks and errors stay where they belong --------------------------------------------------------------------------


def test_tasks_start_only_where_their_end_is_awaited() -> None:
    astray = [
        place(path, node)
        for path in sources("gateway")
        if not allowed(path, TASKS_START_IN)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute) and node.attr in {"open_nursery", "start_soon", "spawn_system_task"}
    ]
    assert astray == []


def test_only_the_edge_of_a_turn_catches_everything() -> None:
    astray = [
        place(path, node)
        for path in sources("gateway")
        if not allowed(path, CATCHES_EVERYTHING)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ExceptHandler) and catches_everything(node)
    ]
    assert astray == []


def catches_everything(handler: ast.ExceptHandler) -> bool:
    """A bare `except:`, or `Exception` or `BaseException`, alone or in a tuple."""
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or named(kind) in {"Exception", "BaseException"} for kind in caught)


# --- sizes and names --------------------------------------------------------------------------------------------------


def test_no_function_is_longer_than_a_screen() -> None:
    long = [
        f"{place(path, node)} {node.name} has {lines} lines"
        for path in sources("gateway", "tests")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES_MAX
    ]
    assert long == []


def test_no_file_is_longer_than_a_reader_holds() -> None:
    long = [
        f"{place(path)} has {lines} lines"
        for path in sources("gateway")
        if (lines := len(path.read_text("utf-8").splitlines())) > FILE_LINES_MAX
    ]
    assert long == []


def test_a_module_is_named_after_what_it_holds() -> None:
    vague = [
        place(path)
        for path in sources("gateway", "tests")
        if not NAMES_THAT_SAY_NOTHING.isdisjoint([*path.stem.split("_"), *path.parent.name.split("_")])
    ]
    assert vague == []


# --- nothing is put off, nothing is silenced without a word -----------------------------------------------------------


def test_nothing_is_put_off() -> None:
    notes = re.compile(r"\b(?:" + "|".join(["TO" + "DO", "FIX" + "ME", "X" * 3]) + r")\b")
    put_off = [
        f"{place(path)}:{number}"
        for path in texts()
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        if notes.search(line)
    ]
    assert put_off == []


def texts() -> Iterator[Path]:
    """The files that people write by hand, and nothing that npm has put among them."""
    for name in TEXTS:
        path = REPOSITORY / name
        files = [path] if path.is_file() else sorted(path.rglob("*"))
        own = (file for file in files if "node_modules" not in file.parts)
        yield from (file for file in own if file.is_file() and file.suffix in TEXT_SUFFIXES)


def test_every_ignore_carries_its_reason() -> None:
    unexplained = [
        f"{place(path)}:{line} {comment}"
        for path in sources("gateway", "tests")
        for line, comment in comments(path)
        if is_unexplained_ignore(comment)
    ]
    assert unexplained == []


def comments(path: Path) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def is_unexplained_ignore(comment: str) -> bool:
    ignore = IGNORE.search(comment)
    return ignore is not None and not ignore["reason"]


@pytest.mark.parametrize(
    ("comment", "unexplained"),
    [
        ("# type: ignore[attr-defined]", True),
        ("# type: ignore[attr-defined]  # hypercorn sets it in __init__", False),
        ("# type: ignore", True),
        ("# noqa: A002", True),
        ("# noqa: A002, N818", True),
        ("# noqa: A002 - the spec's word", False),
        ("# pragma: no cover", True),
        ("# pragma: no cover - only on the day of the leap", False),
        ("# an ordinary remark", False),
    ],
)
def test_a_reason_follows_a_dash_or_is_a_second_comment(comment: str, unexplained: bool) -> None:
    assert is_unexplained_ignore(comment) is unexplained
