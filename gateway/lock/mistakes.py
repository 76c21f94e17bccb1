"""What is wrong with a scenario, in the words that a configuration's mistakes are told in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from gateway.config.explain import place_of, words_of
from gateway.config.problems import REFUSED, KeyPath, Problem, key_path, suggestion
from gateway.config.section import Section

Sections = Mapping[str, type[Section]]


def mistakes(error: ValidationError, file: str, form: type[Section], sections: Sections) -> Iterator[Problem]:
    """Each of the error's details as a problem of `file`, which has that form, and these tables by their names."""
    for details in error.errors(include_url=False):
        path = place_of(details)
        problem, fix = _words(details, _fields_beside(path, form, sections))
        if details["type"] == "tuple_type" and path[0] in sections and len(path) == 1:
            fix = f"write each of them as a table [[{path[0]}]]"
        yield Problem(file, key_path(path), problem, fix)


def _fields_beside(path: KeyPath, form: type[Section], sections: Sections) -> Mapping[str, Any]:
    section = sections.get(str(path[0])) if len(path) > 1 else form
    return {} if section is None else section.model_fields


def _words(details: ErrorDetails, beside: Mapping[str, Any]) -> tuple[str, str]:
    context: dict[str, Any] = details.get("ctx", {})
    match details["type"]:
        case kind if kind == REFUSED:
            return context["problem"], context["fix"]
        case "extra_forbidden":
            return "is not a known key", suggestion(details["loc"][-1], list(beside))
        case "missing":
            return "is missing", "add it"
        case "literal_error":
            return "is not one of the words allowed here", f"write {context['expected']}"
        case "string_pattern_mismatch":  # a configuration's are names
            return "is not in the form that it needs", f"write what matches {context['pattern']}"
    return words_of(details) or (f"is not usable ({details['msg']})", "compare it with the other scenarios")
