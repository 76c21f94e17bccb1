"""Which requests are stateless (S), and what of them goes upstream (H3): each key, tool, member and reason left out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any, Final

from gateway.config import Config
from gateway.core import contents, request
from gateway.core import eligibility as law
from gateway.core.eligibility import StatePolicy, eligibility, makes_store_explicit, reasons_on
from gateway.core.events import lenient_integer
from gateway.core.request import RequestBody, TurnRequest
from gateway.lock.mutants.flips import Flip, Mutant, everywhere, swapped, without
from gateway.lock.world import Change

TABLES: Final[tuple[tuple[ModuleType, str, tuple[str, ...]], ...]] = (
    (contents, "ORIGIN_BOUND_KEYS", ("S5", "R10")),
    (contents, "READ_AND_BOUND", ("S5", "R10")),
    (contents, "BOUND_ONLY", ("S5", "R10")),
    (contents, "SCHEMA_KEYS", ("S5", "R10")),
    (contents, "SIDE_EFFECT_TOOLS", ("S6", "R10")),
    (request, "CUT_FOR_SSE", ("H3",)),
    (request, "CUT_FOR_WEBSOCKET", ("H3", "C5")),
)
REASONS: Final[Mapping[str, tuple[str, ...]]] = {
    law.STORED: ("S1", "R10"),
    law.CONTINUATION: ("S2", "R10"),
    law.ORIGIN_BOUND: ("S5", "S4", "R10"),
    law.BACKGROUND: ("S3", "R10"),
    law.SIDE_EFFECT_TOOL: ("S6", "R10"),
}


def mutants() -> Iterator[Mutant]:
    """All of them."""
    for module, name, rules in TABLES:
        table = getattr(module, name)
        for entry in sorted(table):
            flip = swapped(module, name, without(table, entry))
            yield Mutant(f"{rules[0]}: {name.lower()} without {entry}", rules, flip, words=(entry,))
    for reason, rules in REASONS.items():
        yield Mutant(f"{rules[0]}: no request is {reason}", rules, everywhere(eligibility, _without(reason)))
    yield from _store()
    yield from _origins()
    yield from _members()


Judged = Callable[[RequestBody, Iterable[str], StatePolicy], tuple[str, ...]]


def _without(reason: str) -> Judged:
    def reasons(body: RequestBody, names: Iterable[str], policy: StatePolicy) -> tuple[str, ...]:
        return tuple(found for found in eligibility(body, names, policy) if found != reason)

    return reasons


def _always_stored(request: TurnRequest, *, stores_by_default: bool) -> tuple[str, ...]:
    return request.stateful_reasons


def _never_stored(request: TurnRequest, *, stores_by_default: bool) -> tuple[str, ...]:
    if stores_by_default:
        return request.stateful_reasons
    return tuple(reason for reason in request.stateful_reasons if reason != law.STORED)


def _store() -> Iterator[Mutant]:
    yield Mutant("S1: every upstream stores by default", ("S1",), everywhere(reasons_on, _always_stored))
    yield Mutant("S1: an upstream's default beats what is said", ("S1",), everywhere(reasons_on, _never_stored))

    def absent_is_false(body: RequestBody, _policy: StatePolicy) -> object:
        return False if body.get("store") is None else body.get("store")

    def falsy_is_false(body: RequestBody, policy: StatePolicy) -> object:
        return request_store(body, policy) and body.get("store") != "false"

    request_store = law.effective_store
    never = everywhere(makes_store_explicit, lambda _body, _policy: False)
    yield Mutant("S1: an absent store is false", ("S1",), swapped(law, "effective_store", absent_is_false))
    yield Mutant("S1: what is falsy is false", ("S1",), swapped(law, "effective_store", falsy_is_false))
    yield Mutant("S1: absent_store is not asked", ("S1",), never, words=("absent_store",))
    yield Mutant(
        "S1: store is always made false", ("S1",), everywhere(makes_store_explicit, lambda _body, _policy: True)
    )


def _origins() -> Iterator[Mutant]:
    yield Mutant("S5: no item is a reference", ("S5",), swapped(contents, "_refers_to_item", lambda _item: False))
    yield Mutant("S5: the header binds nothing", ("S5",), swapped(law, "TURN_STATE_HEADER", "x-nothing"))
    yield Mutant("S5: a container binds nothing", ("S5",), swapped(contents, "_binds", _without_containers))
    yield Mutant("S5: any container binds", ("S5",), swapped(contents, "_binds", _any_container))
    yield Mutant(
        "S5: null binds", ("S5",), swapped(contents, "_binds", lambda name, _held: name in contents.ORIGIN_BOUND_KEYS)
    )
    yield Mutant(
        "S4: a stored prompt binds nothing", ("S4",), swapped(contents, "_names_prompt", lambda _prompt: False)
    )
    yield Mutant("S6: the hosted shell writes nothing", ("S6",), swapped(contents, "_writes", _without_shells))
    yield Mutant("S6: the client's own shell writes", ("S6",), swapped(contents, "_writes", _any_shell))
    yield Mutant(
        "S6: replay_side_effect_tools is not asked", ("S6",), change=_policy("replay_side_effect_tools", False)
    )


_true_binds: Final = contents._binds
_true_writes: Final = contents._writes


def _without_containers(name: str, held: object) -> bool:
    return name != "container" and _true_binds(name, held)


def _any_container(name: str, held: object) -> bool:
    return name == "container" or _true_binds(name, held)


def _without_shells(tool: dict[str, Any]) -> bool:
    return not _is_shell(tool) and bool(_true_writes(tool))


def _any_shell(tool: dict[str, Any]) -> bool:
    return _is_shell(tool) or bool(_true_writes(tool))


def _is_shell(tool: object) -> bool:
    return isinstance(tool, dict) and tool.get("type") == "shell"


def _policy(field: str, value: object) -> Change:
    def change(config: Config) -> Config:
        return replace(config, server=config.server.model_copy(update={field: value}))

    return change


def _members() -> Iterator[Mutant]:
    """H3, M3: the splices upward."""
    yield Mutant("H3: stream is not set", ("H3", "W2"), _body_for_sse(streams=False))
    for name, lenient in DECODERS.items():
        yield Mutant(f"H3: {name}", ("H3", "X2"), swapped(request, "_DECODER", lenient))
    yield Mutant("M3: the client's name goes up", ("M3", "H3"), _body_for_sse(renames=False))


def _decoder(**otherwise: Any) -> json.JSONDecoder:
    """As strict as the gateway's own, but for these."""
    strict = {
        "object_pairs_hook": request._unique_pairs,
        "parse_constant": request._refuse_constant,
        "parse_int": lenient_integer,
        "strict": True,
    }
    return json.JSONDecoder(**{**strict, **otherwise})


DECODERS: Final[Mapping[str, json.JSONDecoder]] = {
    "NaN is a number": _decoder(parse_constant=float),
    "a key may stand twice below": _decoder(object_pairs_hook=dict),
    "a control character is text": _decoder(strict=False),
}
_true_body: Final = request.TurnRequest.body_for_sse


def _body_for_sse(*, streams: bool = True, renames: bool = True) -> Flip:
    def body(turn: request.TurnRequest, upstream_model: str | None) -> bytes:
        sent = turn if streams else replace(turn, streams=False)
        return _true_body(sent, upstream_model if renames else None)

    return swapped(request.TurnRequest, "body_for_sse", body)
