"""Prices from a published list: taken exactly or refused, never silently too low."""

import subprocess
import sys
from datetime import date, time
from decimal import Decimal
from typing import Any

import pytest
from genai_prices.data_snapshot import DataSnapshot, set_custom_snapshot
from genai_prices.types import (
    ClauseEquals,
    ConditionalPrice,
    ModelInfo,
    ModelPrice,
    Provider,
    StartDateConstraint,
    Tier,
    TieredPrices,
    TimeOfDateConstraint,
)

from config.samples import parsed, problems, route
from gateway.config.amounts import dollars, parse_nanodollars
from gateway.core.money import Price

LISTED: dict[str, Any] = {
    "plain": ModelPrice(input_mtok=Decimal("1.25"), output_mtok=Decimal(10)),
    "all": ModelPrice(
        input_mtok=Decimal(2),
        cache_read_mtok=Decimal("0.5"),
        output_mtok=Decimal(8),
        output_reasoning_mtok=Decimal("9.5"),
    ),
    "cached-for-nothing": ModelPrice(input_mtok=Decimal(2), cache_read_mtok=Decimal(0), output_mtok=Decimal(8)),
    "embedding": ModelPrice(input_mtok=Decimal("0.02")),
    "gift": ModelPrice(),
    "half-a-gift": ModelPrice(input_mtok=Decimal(1), output_mtok=Decimal(0)),
    "noise": ModelPrice(input_mtok=Decimal("1.0399999999999998"), output_mtok=Decimal(1)),
    "smallest": ModelPrice(input_mtok=Decimal("1E-9"), output_mtok=Decimal("1E+1")),
    "negative": ModelPrice(input_mtok=Decimal(-1), output_mtok=Decimal(1)),
    "nan": ModelPrice(input_mtok=Decimal("NaN"), output_mtok=Decimal(1)),
    "fee": ModelPrice(input_mtok=Decimal(1), output_mtok=Decimal(1), requests_kcount=Decimal(5)),
    "steps": ModelPrice(
        input_mtok=TieredPrices(base=Decimal("2.5"), tiers=[Tier(start=272_000, price=Decimal(5))]),
        output_mtok=TieredPrices(base=Decimal(15), tiers=[Tier(start=272_000, price=Decimal("22.5"))]),
    ),
    "cheaper-since": [
        ConditionalPrice(prices=ModelPrice(input_mtok=Decimal(10), output_mtok=Decimal(40))),
        ConditionalPrice(
            StartDateConstraint(date(2025, 6, 10)), prices=ModelPrice(input_mtok=Decimal(2), output_mtok=Decimal(8))
        ),
        ConditionalPrice(
            StartDateConstraint(date(9999, 1, 1)), prices=ModelPrice(input_mtok=Decimal(1), output_mtok=Decimal(1))
        ),
    ],
    "nightly": [
        ConditionalPrice(prices=ModelPrice(input_mtok=Decimal(2), output_mtok=Decimal(2))),
        ConditionalPrice(
            TimeOfDateConstraint(time(16, 30), time(0, 30)),
            prices=ModelPrice(input_mtok=Decimal(1), output_mtok=Decimal(1)),
        ),
    ],
}


@pytest.fixture
def _list() -> Any:
    models = [ModelInfo(id=name, match=ClauseEquals(equals=name), prices=prices) for name, prices in LISTED.items()]
    set_custom_snapshot(DataSnapshot([Provider("maker", "Maker", "-", models=models)], from_auto_update=False))
    yield
    set_custom_snapshot(None)


def priced(model: str, **more: str) -> str:
    return route(f"price = {entry(provider='maker', model=model, **more)}")


def entry(**words: str) -> str:
    named = ", ".join(f'{name} = "{value}"' for name, value in {"from": "genai-prices", **words}.items())
    return f"{{ {named} }}"


@pytest.mark.usefixtures("_list")
@pytest.mark.parametrize(
    ("model", "tier", "price"),
    [
        ("plain", {}, Price(1_250_000_000, 1_250_000_000, 10_000_000_000, 10_000_000_000)),
        ("all", {}, Price(2_000_000_000, 500_000_000, 8_000_000_000, 9_500_000_000)),
        ("cached-for-nothing", {}, Price(2_000_000_000, 2_000_000_000, 8_000_000_000, 8_000_000_000)),
        ("smallest", {}, Price(1, 1, 10_000_000_000, 10_000_000_000)),
        ("cheaper-since", {}, Price(2_000_000_000, 2_000_000_000, 8_000_000_000, 8_000_000_000)),
        ("steps", {"tier": "base"}, Price(2_500_000_000, 2_500_000_000, 15_000_000_000, 15_000_000_000)),
        ("steps", {"tier": "highest"}, Price(5_000_000_000, 5_000_000_000, 22_500_000_000, 22_500_000_000)),
        ("plain", {"tier": "base"}, Price(1_250_000_000, 1_250_000_000, 10_000_000_000, 10_000_000_000)),
    ],
)
def test_a_listed_price_is_taken_exactly(model: str, tier: dict[str, str], price: Price) -> None:
    """B2."""
    assert parsed(priced(model, **tier)).routes["openai"].price == price


FIGURES = 'write the figures that shall be charged: { input = "1.25", output = "10" }'
FREE = 'what costs nothing is price = "free"'


@pytest.mark.usefixtures("_list")
@pytest.mark.parametrize(
    ("model", "why"),
    [
        ("embedding", f"has no price for output; {FREE}"),
        ("gift", f"has no price for input and output; {FREE}"),
        ("half-a-gift", f"has no price for output; {FREE}"),
        ("noise", f"has the price 1.0399999999999998, which is no amount of whole nano-dollars; {FIGURES}"),
        ("negative", f"has the price -1, which is no amount of whole nano-dollars; {FIGURES}"),
        ("nan", f"has the price NaN, which is no amount of whole nano-dollars; {FIGURES}"),
        ("fee", f"has a price for each request, which usage does not count; {FIGURES}"),
        ("nightly", f"has a price that depends on the time of day; {FIGURES}"),
        (
            "steps",
            "rises with the size of the input: $2.5, $5 from 272000 tokens; "
            'add tier = "base" or tier = "highest", whichever shall be charged',
        ),
    ],
)
def test_a_listed_price_that_could_be_too_low_is_refused(model: str, why: str) -> None:
    """B2: no silent zero."""
    assert problems(priced(model)) == [
        f"gateway.toml: routes.openai.price: cannot be taken from genai-prices: {model} {why}"
    ]


@pytest.mark.usefixtures("_list")
@pytest.mark.parametrize(
    ("price", "problem"),
    [
        (
            entry(provider="maker", model="cheaper-sinse"),
            "names no model that genai-prices knows at maker; did you mean cheaper-since?",
        ),
        (
            entry(provider="maker", model="zzz"),
            "names no model that genai-prices knows at maker; "
            'write the figures down: { input = "1.25", output = "10" }',
        ),
        (entry(provider="makre", model="plain"), 'names no provider of genai-prices; did you mean "maker"?'),
        (
            entry(model="plain"),
            "does not name a provider and a model, both in quotes; "
            'write it like { from = "genai-prices", provider = "openai", model = "gpt-5" }',
        ),
        (entry(provider="maker", modle="plain"), 'has the key modle, unknown beside from; did you mean "model"?'),
        (
            entry(provider="maker", model="steps", tier="cheap"),
            'has a tier that is not known; write tier = "base" or tier = "highest"',
        ),
        ('{ from = "litellm" }', 'is from a list that is not known; write from = "genai-prices"'),
        ("{ from = 5 }", 'is from a list that is not known; write from = "genai-prices"'),
    ],
)
def test_what_names_no_listed_price_is_told_with_the_fix(price: str, problem: str) -> None:
    assert problems(route(f"price = {price}")) == [f"gateway.toml: routes.openai.price: {problem}"]


def test_the_list_that_ships_knows_a_model_by_its_dated_name_and_at_another_provider() -> None:
    """The package's own data, so that a release of it that is built otherwise is noticed."""
    names = (("openai", "gpt-5"), ("openai", "gpt-5-2025-08-07"), ("azure", "gpt-5"))
    prices = {parsed(route(f"price = {entry(provider=p, model=m)}")).routes["openai"].price for p, m in names}

    assert prices == {Price(1_250_000_000, 125_000_000, 10_000_000_000, 10_000_000_000)}


def test_a_configuration_without_a_listed_price_does_not_load_the_list() -> None:
    """A start must not pay for 30,000 lines of data."""
    code = "import sys, gateway.config; sys.exit('genai_prices' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("text", ["0.00", "12.50", "0.000000001", "1.23", "999999999.999999999"])
def test_an_amount_is_written_as_it_is_read(text: str) -> None:
    """B1: exact both ways."""
    assert dollars(parse_nanodollars(text)) == text


@pytest.mark.parametrize(
    ("nanodollars", "text"), [(-1, "-0.000000001"), (-1_500_000_000, "-1.50"), (10**20, f"{10**11}.00")]
)
def test_an_amount_may_be_negative_or_huge(nanodollars: int, text: str) -> None:
    """B6: an overdrawn balance."""
    assert dollars(nanodollars) == text
