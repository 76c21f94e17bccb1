"""What a turn costs, and that its reservation is resolved exactly once (B)."""

from fractions import Fraction
from math import ceil
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.money import (
    FREE,
    TOKENS_MAX,
    UNMETERED_CHARGES,
    Basis,
    Cell,
    ChargePolicy,
    Ended,
    EndedBy,
    Flag,
    InputMeasure,
    PartTokens,
    Price,
    ReservationState,
    Reserved,
    Resolution,
    Result,
    Settled,
    Usage,
    Voided,
    apply_resolution,
    charge_cell,
    estimate_input_tokens,
    read_usage,
    reservation_nanodollars,
    resolve,
    text_tokens,
    usage_was_observed,
)

PRICE: Final = Price(input=1_250_000_000, cached_input=125_000_000, output=10_000_000_000, reasoning=10_000_000_000)
"""$1.25 and $10 for a million tokens."""
USAGE: Final = Usage(input_tokens=100, output_tokens=10)
USAGE_COSTS: Final = 100 * 1_250 + 10 * 10_000
RESERVED: Final = 1_000_000
INPUT_TOKENS: Final = 200
TEXT_BYTES: Final = 31
ESTIMATE: Final = 200 * 1_250 + 11 * 10_000

PRICES: Final = st.builds(Price, *[st.integers(0, 10**12) | st.sampled_from([0, 1, 999_999, 1_000_000, 1_000_001])] * 4)
USAGES: Final = st.builds(
    lambda cached, fresh, reasoning, visible: Usage(cached + fresh, reasoning + visible, cached, reasoning),
    *[st.integers(0, 10**7)] * 4,
)


# --- B5, R4: usage ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "usage", "observed"),
    [
        pytest.param({"input_tokens": 4, "output_tokens": 1}, Usage(4, 1), True, id="complete"),
        pytest.param({"input_tokens": 0, "output_tokens": 0}, Usage(0, 0), False, id="zeros"),
        pytest.param(
            {
                "input_tokens": 9,
                "input_tokens_details": {"cached_tokens": 8},
                "output_tokens": 7,
                "output_tokens_details": {"reasoning_tokens": 6},
                "total_tokens": 16,
            },
            Usage(9, 7, 8, 6),
            True,
            id="with-details",
        ),
        pytest.param(
            {
                "input_tokens": 9,
                "input_tokens_details": None,
                "output_tokens": 7,
                "output_tokens_details": {"reasoning_tokens": None, "other": "x"},
            },
            Usage(9, 7),
            True,
            id="null-details",
        ),
        pytest.param({"input_tokens": 9, "output_tokens": 9, "input_tokens_details": {}}, Usage(9, 9), True, id="{}"),
        pytest.param({"input_tokens": TOKENS_MAX, "output_tokens": 0}, Usage(TOKENS_MAX, 0), True, id="the-most"),
        pytest.param({"input_tokens": TOKENS_MAX + 1, "output_tokens": 0}, None, True, id="more-than-any-response-has"),
        pytest.param({"input_tokens": 10**390, "output_tokens": 0}, None, True, id="gigantic"),
        pytest.param({"input_tokens": 4}, None, True, id="bug-16-partial"),
        pytest.param({"input_tokens": 0}, None, False, id="partial-zero"),
        pytest.param({"input_tokens": 4, "output_tokens": None}, None, True, id="one-is-null"),
        pytest.param({"input_tokens": None, "output_tokens": None}, None, False, id="both-are-null"),
        pytest.param({"input_tokens": 4, "output_tokens": "3"}, None, True, id="bug-16-text"),
        pytest.param({"input_tokens": "0", "output_tokens": "0"}, None, True, id="zeros-as-text"),
        pytest.param({"input_tokens": 4.0, "output_tokens": 1}, None, True, id="float"),
        pytest.param({"input_tokens": float("nan"), "output_tokens": 0}, None, True, id="NaN"),
        pytest.param({"input_tokens": -1, "output_tokens": 1}, None, True, id="negative"),
        pytest.param({"input_tokens": True, "output_tokens": True}, None, True, id="booleans"),
        pytest.param({"input_tokens": [4], "output_tokens": {"n": 1}}, None, True, id="nested"),
        pytest.param(
            {"input_tokens": 4, "output_tokens": 1, "input_tokens_details": {"cached_tokens": "4"}},
            None,
            True,
            id="malformed-detail",
        ),
        pytest.param(
            {"input_tokens": 4, "output_tokens": 1, "output_tokens_details": [1]}, None, True, id="malformed-details"
        ),
        pytest.param(
            {"input_tokens": 4, "output_tokens": 1, "input_tokens_details": {"cached_tokens": 5}},
            None,
            True,
            id="part-above-the-whole",
        ),
        pytest.param(
            {"input_tokens": 0, "output_tokens": 0, "input_tokens_details": {"cached_tokens": 1}},
            None,
            True,
            id="only-a-part",
        ),
        pytest.param(
            {
                "input_tokens": 9,
                "input_tokens_details": {"cached_tokens": 9},
                "output_tokens": 7,
                "output_tokens_details": {"reasoning_tokens": 7},
            },
            Usage(9, 7, 9, 7),
            True,
            id="part-is-the-whole",
        ),
        pytest.param({"input_tokens": 1, "other": [0]}, None, True, id="zeros-beside"),
        pytest.param({"input_tokens": 1, "other": {"a": 0}}, None, True, id="zeros-below"),
        pytest.param({}, None, False, id="empty"),
        pytest.param(None, None, False, id="null"),
        pytest.param("4", None, True, id="text-itself"),
        pytest.param([], None, False, id="list"),
        pytest.param(0, None, False, id="zero-itself"),
    ],
)
def test_money_wants_complete_counts_and_replay_wants_none_at_all(
    value: Any, usage: Usage | None, observed: bool
) -> None:
    """B5, R4."""
    assert (read_usage(value), usage_was_observed(value)) == (usage, observed)


# --- B1, B2: prices -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("price", "usage", "nanodollars"),
    [
        pytest.param(PRICE, USAGE, USAGE_COSTS, id="input-and-output"),
        pytest.param(PRICE, Usage(100, 10, cached_tokens=100), 100 * 125 + 10 * 10_000, id="all-cached"),
        pytest.param(Price(3, 2, 7, 5), Usage(10, 10, 4, 6), 1, id="less-than-one-rounds-up"),
        pytest.param(Price(1_000_000, 0, 0, 0), Usage(1, 0), 1, id="exactly-one"),
        pytest.param(Price(1_000_001, 0, 0, 0), Usage(1, 0), 2, id="a-little-more-than-one"),
        pytest.param(Price(0, 0, 0, 4_000_000), Usage(0, 5, 0, 2), 8, id="reasoning-has-its-price"),
        pytest.param(PRICE, Usage(0, 0), 0, id="no-tokens"),
        pytest.param(FREE, Usage(TOKENS_MAX, TOKENS_MAX), 0, id="free"),
    ],
)
def test_each_kind_of_token_has_its_price(price: Price, usage: Usage, nanodollars: int) -> None:
    """B2."""
    assert price.cost_nanodollars(usage) == nanodollars


@given(PRICES, USAGES)
@settings(max_examples=120, deadline=None)
def test_a_cost_is_the_exact_amount_rounded_up_once(price: Price, usage: Usage) -> None:
    """B1: integers only; never a float on the way."""
    exact = Fraction(
        (usage.input_tokens - usage.cached_tokens) * price.input
        + usage.cached_tokens * price.cached_input
        + (usage.output_tokens - usage.reasoning_tokens) * price.output
        + usage.reasoning_tokens * price.reasoning,
        1_000_000,
    )
    cost = price.cost_nanodollars(usage)

    assert (type(cost), cost) == (int, ceil(exact))


# --- B4, B6: estimates and reservations ---------------------------------------------------------------------------


@pytest.mark.parametrize(("text_bytes", "tokens"), [(0, 0), (1, 1), (2, 1), (3, 1), (4, 2), (3_000, 1_000)])
def test_three_bytes_of_text_are_a_token(text_bytes: int, tokens: int) -> None:
    """B4: rounded up."""
    assert text_tokens(text_bytes) == tokens


def test_images_and_files_have_flat_figures() -> None:
    """B4."""
    assert estimate_input_tokens(InputMeasure(10, images=2, files=3), PartTokens(image=1_000, file=7)) == 4 + 2_000 + 21


@pytest.mark.parametrize(
    ("prices", "nanodollars"),
    [
        pytest.param((PRICE,), 200 * 1_250 + 10 * 10_000, id="one-route"),
        pytest.param((FREE, PRICE, FREE), 200 * 1_250 + 10 * 10_000, id="the-dearest-of-three"),
        pytest.param((Price(0, 1_000_000, 0, 0),), 200, id="cached-input-may-be-the-dearer"),
        pytest.param((Price(0, 0, 0, 1_000_000),), 10, id="reasoning-may-be-the-dearer"),
        pytest.param((Price(1, 0, 0, 0),), 1, id="rounded-up"),
        pytest.param((FREE,), 0, id="free"),
    ],
)
def test_a_reservation_is_made_at_the_dearest_price(prices: tuple[Price, ...], nanodollars: int) -> None:
    """B6."""
    assert reservation_nanodollars(200, 10, prices) == nanodollars


@given(st.lists(PRICES, min_size=1, max_size=4), USAGES, st.integers(0, 1_000), st.integers(0, 1_000))
@settings(max_examples=120, deadline=None)
def test_a_reservation_covers_every_usage_within_it(
    prices: list[Price], usage: Usage, more_input: int, more_output: int
) -> None:
    """B6: whatever route delivers, and whatever part is cached or reasoning."""
    reserved = reservation_nanodollars(
        usage.input_tokens + more_input, usage.output_tokens + more_output, tuple(prices)
    )

    assert max(price.cost_nanodollars(usage) for price in prices) <= reserved


# --- B3: the table ------------------------------------------------------------------------------------------------

CHARGED: Final = Resolution(USAGE_COSTS)
CHARGED_FAILED: Final = Resolution(USAGE_COSTS, (Flag.FAILED_METERED,))
ESTIMATED: Final = Resolution(ESTIMATE, (Flag.ESTIMATED,))
REFUNDED: Final = Resolution(None)
UNMETERED: Final = Resolution(None, (Flag.UNMETERED,))

TABLE: Final = [
    # ended by, it failed, usage, no output delivered, output delivered
    pytest.param(EndedBy.TERMINAL, False, USAGE, CHARGED, CHARGED, id="terminal-with-usage"),
    pytest.param(EndedBy.UPSTREAM_OR_CLIENT, True, USAGE, CHARGED_FAILED, CHARGED, id="failure-with-usage"),
    pytest.param(EndedBy.GATEWAY, True, USAGE, CHARGED_FAILED, CHARGED, id="own-fault-after-usage"),
    pytest.param(EndedBy.TERMINAL, False, None, UNMETERED, ESTIMATED, id="terminal-without-usage"),
    pytest.param(EndedBy.UPSTREAM_OR_CLIENT, True, None, REFUNDED, ESTIMATED, id="failure-without-usage"),
    pytest.param(EndedBy.GATEWAY, True, None, REFUNDED, UNMETERED, id="own-fault-without-usage"),
]


def cost_of(ended: Ended, policy: ChargePolicy | None = None, reserved: int = RESERVED) -> Resolution:
    return resolve(ended, PRICE, reserved, INPUT_TOKENS, policy or ChargePolicy())


@pytest.mark.parametrize(("by", "failed", "usage", "without_output", "with_output"), TABLE)
def test_the_last_attempt_costs_what_the_table_says(
    by: EndedBy, failed: bool, usage: Usage | None, without_output: Resolution, with_output: Resolution
) -> None:
    """B3."""
    costs = [
        cost_of(Ended(by, output_delivered, usage, failed, TEXT_BYTES if output_delivered else 0))
        for output_delivered in (False, True)
    ]

    assert costs == [without_output, with_output]


def test_the_table_is_total() -> None:
    """B3: every way to end, with and without output."""
    assert set(UNMETERED_CHARGES) == {(by, delivered) for by in EndedBy for delivered in (False, True)}


@pytest.mark.parametrize(
    ("policy", "ended", "resolution"),
    [
        pytest.param(
            ChargePolicy(failed_metered=Basis.VOID),
            Ended(EndedBy.UPSTREAM_OR_CLIENT, False, USAGE, failed=True),
            Resolution(None, (Flag.FAILED_METERED,)),
            id="a-metered-failure-may-be-forgiven",
        ),
        pytest.param(
            ChargePolicy(failed_metered=Basis.VOID),
            Ended(EndedBy.UPSTREAM_OR_CLIENT, True, USAGE, failed=True),
            CHARGED,
            id="but-not-its-delivered-output",
        ),
        pytest.param(
            ChargePolicy(delivered_unmetered=Basis.VOID),
            Ended(EndedBy.UPSTREAM_OR_CLIENT, True, None, failed=True, delivered_text_bytes=TEXT_BYTES),
            UNMETERED,
            id="what-nobody-metered-may-be-free",
        ),
        pytest.param(
            ChargePolicy(delivered_unmetered=Basis.VOID),
            Ended(EndedBy.TERMINAL, True, USAGE, failed=False, delivered_text_bytes=TEXT_BYTES),
            CHARGED,
            id="but-not-what-was-metered",
        ),
    ],
)
def test_the_starred_cells_may_be_configured(policy: ChargePolicy, ended: Ended, resolution: Resolution) -> None:
    """B3."""
    assert cost_of(ended, policy) == resolution


def test_a_free_answer_is_settled_for_nothing_and_not_refunded() -> None:
    """B5: zeros that were metered are an amount; no usage is none."""
    assert cost_of(Ended(EndedBy.TERMINAL, True, Usage(0, 0), failed=False)) == Resolution(0)


def test_a_usage_may_cost_more_than_was_reserved() -> None:
    """B6: the ledger flags the excess; an estimate never has one."""
    charged = cost_of(Ended(EndedBy.TERMINAL, True, USAGE, failed=False), reserved=1)
    estimated = cost_of(Ended(EndedBy.TERMINAL, True, None, failed=False, delivered_text_bytes=9), reserved=1)

    assert (charged, estimated) == (CHARGED, Resolution(1, (Flag.ESTIMATED,)))


ENDINGS: Final = st.builds(
    Ended, st.sampled_from(EndedBy), st.booleans(), st.none() | USAGES, st.booleans(), st.integers(0, 10**6)
)
POLICIES: Final = st.builds(
    ChargePolicy, st.sampled_from([Basis.USAGE, Basis.VOID]), st.sampled_from([Basis.ESTIMATE, Basis.VOID])
)


@given(ENDINGS, PRICES, st.integers(0, 10**9), st.integers(0, 10**6), POLICIES)
@settings(max_examples=150, deadline=None)
def test_every_ending_has_one_price_in_whole_nanodollars(
    ended: Ended, price: Price, reserved: int, input_tokens: int, policy: ChargePolicy
) -> None:
    """B1, B3, B4: by usage it is the usage's; without usage it is never above the reservation."""
    amount = resolve(ended, price, reserved, input_tokens, policy).nanodollars
    ceiling = reserved if ended.usage is None else price.cost_nanodollars(ended.usage)

    assert amount is None or (type(amount) is int and 0 <= amount <= ceiling)


# --- B1: exactly once ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "resolution", "following", "result"),
    [
        (Reserved(9), Resolution(5, (Flag.ESTIMATED,)), Settled(5, (Flag.ESTIMATED,)), Result.SETTLED),
        (Reserved(9), Resolution(0), Settled(0), Result.SETTLED),
        (Reserved(9), Resolution(None, (Flag.UNMETERED,)), Voided((Flag.UNMETERED,)), Result.VOIDED),
        (Settled(5), Resolution(5), Settled(5), Result.ALREADY_SETTLED),
        (Settled(5), Resolution(7), Settled(5), Result.ALREADY_SETTLED),
        (Settled(5), Resolution(None), Settled(5), Result.ALREADY_SETTLED),
        (Voided(), Resolution(None), Voided(), Result.ALREADY_VOIDED),
        (Voided(), Resolution(7), Voided(), Result.ALREADY_VOIDED),
    ],
)
def test_a_final_state_never_changes(
    state: ReservationState, resolution: Resolution, following: ReservationState, result: Result
) -> None:
    """B1."""
    assert apply_resolution(state, resolution) == (following, result)


@given(
    st.integers(0, 10**9), st.lists(st.builds(Resolution, st.none() | st.integers(0, 10**9)), min_size=1, max_size=8)
)
@settings(max_examples=120, deadline=None)
def test_of_any_number_of_resolutions_the_first_one_counts(reserved: int, resolutions: list[Resolution]) -> None:
    """B1: exactly one of them resolves, and the rest say that they did not."""
    state: ReservationState = Reserved(reserved)
    results = []
    for resolution in resolutions:
        state, result = apply_resolution(state, resolution)
        results.append(result)
    first, word = apply_resolution(Reserved(reserved), resolutions[0])
    again = Result.ALREADY_SETTLED if word is Result.SETTLED else Result.ALREADY_VOIDED

    assert (state, results) == (first, [word] + [again] * (len(resolutions) - 1))


@pytest.mark.parametrize(("by", "cell"), [
    (EndedBy.TERMINAL, Cell(Basis.VOID, Flag.UNMETERED)),
    (EndedBy.UPSTREAM_OR_CLIENT, Cell(Basis.VOID, Flag.UNMETERED)),
    (EndedBy.GATEWAY, Cell(Basis.VOID, Flag.UNMETERED)),
])  # fmt: skip
def test_where_nothing_is_estimated_what_was_delivered_unmetered_is_given(by: EndedBy, cell: Cell) -> None:
    """B3: the operator's choice for output without usage."""
    ended = Ended(by, output_delivered=True, usage=None, failed=False, delivered_text_bytes=TEXT_BYTES)
    assert charge_cell(ended, ChargePolicy(delivered_unmetered=Basis.VOID)) == cell
