"""Prices taken from a published list instead of written down: what `genai-prices` ships with its release, no network.

    price = { from = "genai-prices", provider = "openai", model = "gpt-5" }    ->    input, cached_input, output, …

What decides: today's price (one that starts later needs a restart, as any other change of the list does), for the
upstream's default service tier. A list has no price that could silently be too low:

    it depends on the time of day                  refused
    it rises with the size of the input            refused, unless `tier` says which to take: "base" or "highest"
    no price for input or output, or a price of 0  refused: what is free is written "free"
    a price for each request beside its tokens     refused: usage has no count of it
    no price for cached input or reasoning, or 0   that of its side, as in a price that is written down

Prices of what usage does not count (cache writes, images, audio, searches) are not taken.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from gateway.config.problems import refusal, suggestion

if TYPE_CHECKING:
    from genai_prices import types
    from pydantic_core import PydanticCustomError

SOURCE: Final = "from"
GENAI_PRICES: Final = "genai-prices"
BASE: Final = "base"
HIGHEST: Final = "highest"

KEYS: Final = (SOURCE, "provider", "model", "tier")
EXAMPLE: Final = '{ from = "genai-prices", provider = "openai", model = "gpt-5" }'
SUGGESTED_MAX: Final = 3
DECIMAL_PLACES_MAX: Final = 9
"""A nano-dollar is the smallest amount there is."""

COLUMNS: Final = {
    # our name: the list's
    "input": "input_mtok",
    "cached_input": "cache_read_mtok",
    "output": "output_mtok",
    "reasoning": "output_reasoning_mtok",
}
REQUIRED: Final = ("input", "output")
PER_REQUEST: Final = "requests_kcount"


def listed_price(entry: Mapping[str, object]) -> dict[str, str]:
    """The price that the entry names, as the file would write it. Raises a validation error in the file's words."""
    provider_name, model_name, tier = _checked(entry)
    provider = _provider(provider_name)
    model = _model(provider, model_name)
    prices = _todays(model)
    if getattr(prices, PER_REQUEST):
        raise _unusable(model, "has a price for each request, which usage does not count")
    found = {name: _figure(model, getattr(prices, column), tier) for name, column in COLUMNS.items()}
    missing = [name for name in REQUIRED if not found[name]]
    if missing:
        raise _unusable(model, f"has no price for {' and '.join(missing)}", 'what costs nothing is price = "free"')
    return {name: _written(model, figure) for name, figure in found.items() if figure}


def _checked(entry: Mapping[str, object]) -> tuple[str, str, str | None]:
    unknown = [key for key in entry if key not in KEYS]
    if unknown:
        raise refusal(f"has the key {unknown[0]}, unknown beside {SOURCE}", suggestion(unknown[0], KEYS))
    if entry[SOURCE] != GENAI_PRICES:
        raise refusal(f"is {SOURCE} a list that is not known", f'write {SOURCE} = "{GENAI_PRICES}"')
    provider, model, tier = entry.get("provider"), entry.get("model"), entry.get("tier")
    if not isinstance(provider, str) or not isinstance(model, str):
        raise refusal("does not name a provider and a model, both in quotes", f"write it like {EXAMPLE}")
    if tier not in (None, BASE, HIGHEST):
        raise refusal("has a tier that is not known", f'write tier = "{BASE}" or tier = "{HIGHEST}"')
    return provider, model, None if tier is None else str(tier)


# --- the list ---------------------------------------------------------------------------------------------------


def _providers() -> list[types.Provider]:
    """Imported here: 30,000 lines of data that a configuration without a listed price has no use for."""
    from genai_prices.data_snapshot import get_snapshot

    return get_snapshot().providers


def _provider(name: str) -> types.Provider:
    known = {provider.id: provider for provider in _providers()}
    if name not in known:
        raise refusal(f"names no provider of {GENAI_PRICES}", suggestion(name, sorted(known)))
    return known[name]


def _model(provider: types.Provider, name: str) -> types.ModelInfo:
    """The list knows a model by its dated names too, and at some providers by the maker's own."""
    found = provider.find_model(name, all_providers=_providers())
    if found is None:
        raise refusal(f"names no model that {GENAI_PRICES} knows at {provider.id}", _likely(name, provider.models))
    return found


def _likely(name: str, models: Iterable[types.ModelInfo]) -> str:
    nearest = difflib.get_close_matches(name.lower(), [model.id for model in models], n=SUGGESTED_MAX, cutoff=0.5)
    if not nearest:
        return 'write the figures down: { input = "1.25", output = "10" }'
    return f"did you mean {' or '.join(nearest)}?"


def _todays(model: types.ModelInfo) -> types.ModelPrice:
    from genai_prices.types import TimeOfDateConstraint

    prices = model.prices
    if isinstance(prices, list) and any(isinstance(price.constraint, TimeOfDateConstraint) for price in prices):
        raise _unusable(model, "has a price that depends on the time of day")
    return model.get_prices(datetime.now(UTC))


def _figure(model: types.ModelInfo, price: Decimal | types.TieredPrices | None, tier: str | None) -> Decimal | None:
    if price is None or isinstance(price, Decimal):
        return price
    if tier is None:
        steps = ", ".join(f"${step.price} from {step.start} tokens" for step in price.tiers)
        fix = f'add tier = "{BASE}" or tier = "{HIGHEST}", whichever shall be charged'
        raise _unusable(model, f"rises with the size of the input: ${price.base}, {steps}", fix)
    return price.base if tier == BASE else max(price.base, *(step.price for step in price.tiers))


def _written(model: types.ModelInfo, figure: Decimal) -> str:
    """Exact, or not at all."""
    text = f"{figure:f}"
    if not figure.is_finite() or figure < 0 or len(text.partition(".")[2].rstrip("0")) > DECIMAL_PLACES_MAX:
        raise _unusable(model, f"has the price {text}, which is no amount of whole nano-dollars")
    whole, _, fraction = text.partition(".")
    kept = fraction.rstrip("0")
    return f"{whole}.{kept}" if kept else whole


def _unusable(model: types.ModelInfo, why: str, fix: str = "") -> PydanticCustomError:
    fix = fix or 'write the figures that shall be charged: { input = "1.25", output = "10" }'
    return refusal(f"cannot be taken from {GENAI_PRICES}: {model.id} {why}", fix)
