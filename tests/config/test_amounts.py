import pytest

from config.samples import account, parsed, problems, route
from gateway.core.money import Price


def test_a_price_left_out_is_that_of_its_side() -> None:
    config = parsed(route('price = { input = "2", output = "0.000000001" }'))

    assert config.routes["openai"].price == Price(2_000_000_000, 2_000_000_000, 1, 1)


@pytest.mark.parametrize(
    ("text", "nanodollars"),
    [("unlimited", None), ("0", 0), ("12.50", 12_500_000_000), ("007", 7_000_000_000), ("0.000000001", 1)],
)
def test_a_balance_is_exact(text: str, nanodollars: int | None) -> None:
    assert parsed(account(f'balance = "{text}"')).accounts["main"].balance_nanodollars == nanodollars


@pytest.mark.parametrize(
    ("amount", "problem"),
    [
        ("12.50", "must be text, not a number or another type"),
        ('"-12.50"', "must not be negative"),
        ('"$12.50"', "is not an amount of money"),
        ('"12,50"', "is not an amount of money"),
        ('"1e3"', "is not an amount of money"),
        ('".5"', "is not an amount of money"),
        ('"5."', "is not an amount of money"),
        ('""', "is not an amount of money"),
        ('" 5"', "is not an amount of money"),
        ('"٣"', "is not an amount of money"),
        ('"0.0000000001"', "is not an amount of money"),
        ('"1000000000"', "is not an amount of money"),
        ('"infinite"', "is not an amount of money"),
        ('"NaN"', "is not an amount of money"),
        ("nan", "must be text, not a number or another type"),
        ("-inf", "must be text, not a number or another type"),
        ('"1.2500000000"', "is not an amount of money"),
        ('"-0"', "must not be negative"),
        ('["1"]', "must be text, not a number or another type"),
    ],
)
def test_bad_money_is_refused_wherever_it_stands(amount: str, problem: str) -> None:
    balance, cost = f"balance = {amount}", f'price = {{ input = {amount}, output = "1" }}'

    (of_balance,), (of_price,) = problems(account(balance)), problems(route(cost))

    assert of_balance.startswith(f"gateway.toml: accounts.main.balance: {problem}; write dollars as decimal text")
    assert of_price.startswith(f"gateway.toml: routes.openai.price.input: {problem}; write dollars as decimal text")


@pytest.mark.parametrize("price", ['"fre"', '"1.25"', "1.25", '["1"]'])
def test_a_price_is_free_or_a_table(price: str) -> None:
    assert problems(route(f"price = {price}")) == [
        'gateway.toml: routes.openai.price: is not a price; write "free" or { input = "1.25", output = "10" }, '
        "dollars per million tokens"
    ]


def test_a_price_names_both_sides() -> None:
    assert problems(route('price = { inputs = "1" }')) == [
        'gateway.toml: routes.openai.price.input: is missing; add input = "1.25"',
        'gateway.toml: routes.openai.price.output: is missing; add output = "10"',
        'gateway.toml: routes.openai.price.inputs: is not a known key; did you mean "input"?',
    ]
