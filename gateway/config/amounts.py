"""Money as the file writes it: dollars as decimal text, exact; the program knows integer nano-dollars only (B1).

    "12.50"  ->  12_500_000_000            "free"  ->  Price(0, 0, 0, 0)
    12_500_000_000  ->  "12.50"            { from = "genai-prices", … }  ->  pricelists.py

Numbers without quotes are refused: TOML reads them as binary floats, and 0.1 dollars would not be 0.1 dollars.
"""

import re
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, GetCoreSchemaHandler, GetPydanticSchema
from pydantic_core import CoreSchema, core_schema

from gateway.config.pricelists import DECIMAL_PLACES_MAX, SOURCE, listed_price
from gateway.config.problems import refusal
from gateway.config.section import Section
from gateway.core.money import Price

_DOLLARS: Final = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?")
"""Nine digits before the point too: every amount, and sums of a few, fit the ledgers' 64-bit integers."""

_AMOUNT_FIX: Final = 'write dollars as decimal text, up to 9 digits before and after the point, for example "12.50"'


def parse_nanodollars(value: object) -> int:
    """Decimal text in dollars as integer nano-dollars."""
    if not isinstance(value, str):
        raise refusal("must be text, not a number or another type", _AMOUNT_FIX)
    if value.startswith("-"):
        raise refusal("must not be negative", _AMOUNT_FIX)
    amount = _DOLLARS.fullmatch(value)
    if amount is None:
        raise refusal("is not an amount of money", _AMOUNT_FIX)
    whole, fraction = amount.group(1), amount.group(2) or ""
    return int(whole + fraction.ljust(DECIMAL_PLACES_MAX, "0"))


def dollars(nanodollars: int) -> str:
    """Nano-dollars as decimal text in dollars: exact, with at least the cents."""
    whole, fraction = divmod(abs(nanodollars), 10**DECIMAL_PLACES_MAX)
    digits = f"{fraction:0{DECIMAL_PLACES_MAX}d}".rstrip("0").ljust(2, "0")
    return f"{'-' if nanodollars < 0 else ''}{whole}.{digits}"


def dollars_in_column(nanodollars: int) -> str:
    """The same, 20 characters wide, the points of many below each other."""
    whole, _, fraction = dollars(nanodollars).partition(".")
    return f"{whole:>10}.{fraction:<{DECIMAL_PLACES_MAX}}"


def parse_balance(value: object) -> int | None:
    """An account's balance in nano-dollars, None if it has no limit (B6)."""
    return None if value == "unlimited" else parse_nanodollars(value)


Nanodollars = Annotated[int, BeforeValidator(parse_nanodollars)]
Balance = Annotated[int | None, BeforeValidator(parse_balance)]


class PriceTable(Section):
    """Nano-dollars per million tokens; what is left out costs what the whole of its side costs (B2)."""

    input: Nanodollars = Field(examples=['input = "1.25"'])
    cached_input: Nanodollars | None = None
    output: Nanodollars = Field(examples=['output = "10"'])
    reasoning: Nanodollars | None = None


def _spell_out(value: object) -> object:
    if value == "free":
        return {"input": "0", "output": "0"}
    if not isinstance(value, dict):
        raise refusal("is not a price", 'write "free" or { input = "1.25", output = "10" }, dollars per million tokens')
    return listed_price(value) if SOURCE in value else value


def _complete(table: PriceTable) -> Price:
    cached_input = table.input if table.cached_input is None else table.cached_input
    reasoning = table.output if table.reasoning is None else table.reasoning
    return Price(input=table.input, cached_input=cached_input, output=table.output, reasoning=reasoning)


def _price_schema(_source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
    written = handler.generate_schema(Annotated[PriceTable, BeforeValidator(_spell_out)])
    return core_schema.no_info_after_validator_function(_complete, written)


WrittenPrice = Annotated[Price, GetPydanticSchema(_price_schema)]
"""A `Price`, written as "free", as a `PriceTable`, or taken from a list; its errors keep the table's own key paths."""
