"""Make the tree in which mutants are tested: a copy of the checkout whose chosen files hold all their mutants."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterable
from difflib import unified_diff
from functools import cache
from pathlib import Path
from typing import Final

from mutmut.mutation.file_mutation import mutate_file_contents

REPOSITORY: Final = Path(__file__).parents[2]
TREE: Final = REPOSITORY / "mutants"
COPIED: Final = ("gateway", "tests", "fixtures", "deploy")
OWN_TABLE: Final = {
    "from mutmut.mutation.trampoline import": "from mutation.registry import SEEN as _mutmut_seen,",
    ": MutantDict = {}": ": MutantDict = MutantDict()",
}
"""What mutmut writes, and what stands in its place."""


def make_tree(modules: Iterable[str]) -> int:
    """Copy, and mutate these modules, e.g. `gateway.core.money`. How many mutants there are."""
    TREE.mkdir(exist_ok=True)
    for name in COPIED:
        shutil.rmtree(TREE / name, ignore_errors=True)
        shutil.copytree(REPOSITORY / name, TREE / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPOSITORY / "pyproject.toml", TREE)
    return sum(_mutate(Path(f"{module.replace('.', '/')}.py")) for module in modules)


def _mutate(path: Path) -> int:
    code, count = mutated(path, (TREE / path).read_text("utf-8"))
    (TREE / path).write_text(code, "utf-8")
    return count


def mutated(path: Path, code: str) -> tuple[str, int]:
    """A module's code with all its mutants, and how many there are."""
    made = mutate_file_contents(str(path), code)
    code = made.code
    for theirs, ours in OWN_TABLE.items():
        code = code.replace(theirs, ours)
    return _noting_calls(code, path), len(made.mutant_names)


def _noting_calls(code: str, path: Path) -> str:
    """Each function that has mutants notes first of all that it was called."""
    lines = code.splitlines()
    module = path.with_suffix("").as_posix().replace("/", ".")
    functions = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for function in sorted(functions, key=lambda function: function.lineno, reverse=True):
        table = next(
            (ast.unparse(mark) for mark in function.decorator_list if "_mutmut_mutated(" in ast.unparse(mark)), ""
        )
        if table:
            first = function.body[0]
            name = table.removeprefix("_mutmut_mutated(mutants_").split("__mutmut")[0]
            note = f"_mutmut_seen.add({f'{module}.{name}'!r})"
            lines.insert(first.lineno - 1, " " * first.col_offset + note)
    return "\n".join(lines) + "\n"


def change(mutant: str) -> tuple[str, str]:
    """What a mutant changes in its function: the lines that were, and those that take their place."""
    module, _, name = mutant.rpartition(".")
    functions = _functions(TREE / f"{module.replace('.', '/')}.py")
    was, becomes = functions[f"{name.rpartition('__mutmut_')[0]}__mutmut_orig"], functions[name]
    changed = list(unified_diff(was, becomes, n=0, lineterm=""))[2:]
    return _side(changed, "-"), _side(changed, "+")


def _side(changed: list[str], sign: str) -> str:
    return "\n".join(line[1:].strip() for line in changed if line.startswith(sign))


@cache
def _functions(path: Path) -> dict[str, list[str]]:
    """The lines of each function and method, as Python itself would write them."""
    tree = ast.parse(path.read_text("utf-8"))
    return {
        node.name: ast.unparse(node).replace(f"def {node.name}(", "def (", 1).splitlines()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
