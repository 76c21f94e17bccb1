"""Which requests are stateless, and why the others are not (S)."""

import json
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.contents import ORIGIN_BOUND_KEYS
from gateway.core.eligibility import (
    BACKGROUND,
    CONTINUATION,
    ORIGIN_BOUND,
    SIDE_EFFECT_TOOL,
    STORED,
    StatePolicy,
    effective_store,
    eligibility,
    reasons_on,
)
from gateway.core.replay import Reason
from gateway.core.request import RequestBody, TurnRequest

STATELESS: Final[dict[str, Any]] = {"model": "m", "store": False, "input": "hi"}


def body_of(fields: dict[str, Any]) -> RequestBody:
    return RequestBody(json.dumps(fields).encode())


def reasons(headers: tuple[str, ...] = (), policy: StatePolicy | None = None, **fields: Any) -> tuple[str, ...]:
    """Why a request with these members is stateful; it is stateless but for them."""
    return eligibility(body_of(STATELESS | fields), headers, policy or StatePolicy())


# --- S1 to S4 -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "absent_store_is_false", "expected"),
    [
        pytest.param({"store": False}, False, (), id="false"),
        pytest.param({"store": True}, False, (STORED,), id="true"),
        pytest.param({}, False, (STORED,), id="absent"),
        pytest.param({"store": None}, False, (STORED,), id="null"),
        pytest.param({"store": "false"}, False, (STORED,), id="text"),
        pytest.param({"store": 0}, False, (STORED,), id="zero"),
        pytest.param({}, True, (), id="absent-made-false"),
        pytest.param({"store": None}, True, (), id="null-made-false"),
        pytest.param({"store": True}, True, (STORED,), id="explicit-true-stays"),
        pytest.param({"store": 0}, True, (STORED,), id="explicit-zero-stays"),
        pytest.param({"background": True}, True, (STORED, BACKGROUND), id="background-stays-stored"),
    ],
)
def test_bug_49_only_an_effective_false_is_stateless(
    fields: dict[str, Any], absent_store_is_false: bool, expected: tuple[str, ...]
) -> None:
    """S1."""
    policy = StatePolicy(absent_store_is_false)
    body = body_of({"model": "m"} | fields)

    assert (eligibility(body, (), policy), effective_store(body, policy) is False) == (expected, STORED not in expected)


@pytest.mark.parametrize(
    ("fields", "stores_by_default", "expected"),
    [
        pytest.param({}, True, (STORED, BACKGROUND), id="absent-and-stored-there"),
        pytest.param({}, False, (BACKGROUND,), id="absent-and-not-stored-there"),
        pytest.param({"store": None}, False, (BACKGROUND,), id="null-and-not-stored-there"),
        pytest.param({"store": True}, False, (STORED, BACKGROUND), id="explicit-true"),
        pytest.param({"store": False}, True, (BACKGROUND,), id="explicit-false"),
    ],
)
def test_what_is_stored_by_default_is_the_routes_own_affair(
    fields: dict[str, Any], stores_by_default: bool, expected: tuple[str, ...]
) -> None:
    """S1: only where the request does not say `store` itself."""
    body = body_of({"model": "m", "background": True} | fields)
    request = TurnRequest(body, "m", eligibility(body, (), StatePolicy()), splices_store=False)
    assert reasons_on(request, stores_by_default=stores_by_default) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"previous_response_id": "resp_1"}, (CONTINUATION,), id="S2-previous"),
        pytest.param({"previous_response_id": None}, (), id="S2-previous-null"),
        pytest.param({"previous_response_id": ""}, (), id="S2-previous-empty"),
        pytest.param({"conversation": "conv_1"}, (CONTINUATION,), id="S2-conversation"),
        pytest.param({"conversation": {"id": "conv_1"}}, (CONTINUATION,), id="S2-conversation-object"),
        pytest.param({"conversation": {}}, (CONTINUATION,), id="S2-conversation-unknown-shape"),
        pytest.param({"conversation": None}, (), id="S2-conversation-null"),
        pytest.param({"background": True}, (BACKGROUND,), id="S3-background"),
        pytest.param({"background": False}, (), id="S3-foreground"),
        pytest.param({"background": None}, (), id="S3-null"),
        pytest.param({"background": "yes"}, (BACKGROUND,), id="S3-odd"),
        pytest.param({"prompt": {"id": "pmpt_1", "variables": {}}}, (ORIGIN_BOUND,), id="S4-prompt"),
        pytest.param({"prompt": {"id": None}}, (), id="S4-prompt-without-id"),
        pytest.param({"prompt": None}, (), id="S4-null"),
        pytest.param({"prompt": "text"}, (), id="S4-text"),
        pytest.param({"include": ["reasoning.encrypted_content"]}, (), id="S5-asking-binds-nothing"),
        pytest.param({"metadata": {"file_id": "file_1"}}, (), id="S5-metadata-binds-nothing"),
        pytest.param({"prompt_cache_key": "k", "user": "u", "safety_identifier": "s"}, (), id="S-plain-members"),
    ],
)
def test_a_request_is_stateful_by_these_members(fields: dict[str, Any], expected: tuple[str, ...]) -> None:
    assert reasons(**fields) == expected


@pytest.mark.parametrize("name", ["x-codex-turn-state", "X-Codex-Turn-State"])
def test_a_turn_state_header_binds_to_its_origin(name: str) -> None:
    """S5."""
    assert (reasons(headers=(name,)), reasons(headers=("x-codex-turn-metadata",))) == ((ORIGIN_BOUND,), ())


def test_all_reasons_are_named_in_the_order_of_r10() -> None:
    """S7, R10."""
    everything = reasons(
        store=True, previous_response_id="r", prompt={"id": "p"}, background=True, tools=[{"type": "mcp"}]
    )

    assert everything == (STORED, CONTINUATION, ORIGIN_BOUND, BACKGROUND, SIDE_EFFECT_TOOL)


def test_each_reason_is_one_of_the_decisions() -> None:
    """S7, R10: the replay decision knows them by name."""
    assert {STORED, CONTINUATION, ORIGIN_BOUND, BACKGROUND, SIDE_EFFECT_TOOL} <= {reason.value for reason in Reason}


# --- S5: bound keys -----------------------------------------------------------------------------------------------

SPECIFIED_KEYS: Final = [
    "connector_id",
    "container_id",
    "continuation_id",
    "encrypted_content",
    "file_id",
    "file_ids",
    "fingerprint",
    "skill_id",
    "tunnel_id",
    "vector_store_ids",
]


def test_the_bound_keys_are_those_of_the_specification() -> None:
    """S5: beside `item_reference`, `container` and reasoning items, which are bound by their shape."""
    assert sorted(ORIGIN_BOUND_KEYS) == SPECIFIED_KEYS


@pytest.mark.parametrize("key", SPECIFIED_KEYS)
def test_bug_47_a_bound_key_binds_as_a_key_with_a_value_and_not_otherwise(key: str) -> None:
    """S5: in `input` and `tools`, at any depth; never as text, as null, as a value or in a schema."""
    holder = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "t", key: "v"}]}
    elsewhere: dict[str, Any] = {key: "v"}
    bound = [
        reasons(input=[holder]),
        reasons(input=[{"role": "user", "content": {"deep": [[{"er": {key: ["v"]}}]]}}]),
        reasons(input=[{"role": "user", "content": {key: "v"}, "metadata": {"a": {"b": [1]}}}]),
        reasons(tools=[{"type": "file_search", key: ["v"]}]),
        reasons(tools=[{"type": "image_generation", "input_image_mask": {key: "v"}}]),
        reasons(input=[{"type": "tool_search_output", "tools": [{"type": "file_search", key: "v"}]}]),
        reasons(input=holder),
        reasons(background_options={key: "v"}),
    ]
    free = [
        reasons(input=f'{{"{key}": "v"}}'),
        reasons(input=[{"role": "user", "content": f'{{"{key}": "v"}}'}]),
        reasons(input=[{"role": "user", "content": [{"type": "input_text", "text": "t", key: None}]}]),
        reasons(input=[{"role": "user", "content": [key]}]),
        reasons(tools=[{"type": "function", "name": key, "parameters": {"properties": {key: {"type": "string"}}}}]),
        reasons(tools=[{"type": "function", "name": "f", "parameters": {key: "v"}, "output_schema": {key: 1}}]),
        reasons(input=[{"type": "mcp_list_tools", "tools": [{"name": "f", "input_schema": {key: {}}}]}]),
        reasons(text={"format": {"type": "json_schema", "schema": {"properties": {key: {}}}}}),
        reasons(metadata={key: "v"}, tool_choice={key: "v"}, reasoning={key: "v"}, include=[key]),
        reasons(**elsewhere),
    ]

    assert (set(bound), set(free)) == ({(ORIGIN_BOUND,)}, {()})


@pytest.mark.parametrize(
    ("item", "is_bound"),
    [
        pytest.param({"type": "item_reference", "id": "msg_1"}, True, id="item-reference"),
        pytest.param({"type": "item_reference"}, True, id="item-reference-without-id"),
        pytest.param({"id": "msg_1"}, True, id="no-type"),
        pytest.param({"type": None, "id": "msg_1"}, True, id="type-null"),
        pytest.param({"id": "msg_1", "status": "completed"}, True, id="no-type-other-members"),
        pytest.param({"id": "msg_1", "role": None, "content": None}, True, id="no-type-null-members"),
        pytest.param({"id": "msg_1", "role": "user", "content": "hi"}, False, id="no-type-a-message"),
        pytest.param({"id": "msg_1", "role": "user"}, False, id="no-type-a-role"),
        pytest.param({"id": "msg_1", "content": "hi"}, False, id="no-type-a-content"),
        pytest.param({"id": None}, False, id="no-type-no-id"),
        pytest.param({"type": "message", "id": "msg_1", "role": "assistant", "content": []}, False, id="message"),
        pytest.param({"type": "function_call", "id": "fc_1", "name": "f", "arguments": "{}"}, False, id="call"),
        pytest.param({"type": "reasoning", "id": "rs_1", "summary": []}, True, id="reasoning-by-id"),
        pytest.param({"type": "reasoning", "id": "rs_1", "content": []}, True, id="reasoning-empty"),
        pytest.param({"type": "reasoning", "id": "rs_1", "content": None}, True, id="reasoning-null"),
        pytest.param({"type": "reasoning", "id": "rs_1", "content": [{"text": "a"}]}, False, id="reasoning-inline"),
        pytest.param({"type": "reasoning", "summary": [{"text": "a"}]}, False, id="reasoning-without-id"),
        pytest.param({"type": "reasoning", "id": "rs_1", "encrypted_content": "gA"}, True, id="reasoning-sealed"),
        pytest.param({"type": ["item_reference"], "id": "x", "content": "a"}, False, id="type-is-a-list"),
        pytest.param("item_reference", False, id="text"),
        pytest.param(None, False, id="null"),
    ],
)
def test_bug_47_an_item_that_only_its_origin_can_resolve_is_bound(item: Any, is_bound: bool) -> None:
    """S5: alone or among others."""
    expected = (ORIGIN_BOUND,) if is_bound else ()

    assert (reasons(input=[item]), reasons(input=["x", {"role": "user", "content": "a"}, item])) == (expected, expected)


@pytest.mark.parametrize(
    ("container", "is_bound"),
    [
        ("cntr_1", True),
        ({"type": "auto"}, False),
        ({"type": "auto", "memory_limit": "4g"}, False),
        ({"type": "auto", "file_ids": ["file_1"]}, True),
        ({"type": "auto", "file_ids": None}, False),
        ({"id": "cntr_1"}, True),
        ({"id": None}, False),
        ({"container_id": "cntr_1"}, True),
        ({}, False),
        (None, False),
    ],
)
def test_a_container_is_bound_by_an_id_or_by_files(container: Any, is_bound: bool) -> None:
    """S5: a container made for the request is not."""
    policy = StatePolicy(replay_side_effect_tools=True)

    assert reasons(policy=policy, tools=[{"type": "code_interpreter", "container": container}]) == (
        (ORIGIN_BOUND,) if is_bound else ()
    )


@pytest.mark.parametrize(
    ("fields", "has_marks"),
    [
        ({"conversation": "conv_1"}, True),
        ({"conversation": None}, False),
        ({}, False),
        ({"prompt": {"id": "pmpt_1"}}, True),
    ],
)
def test_items_are_marked_where_their_origin_is_asked_for(fields: dict[str, Any], has_marks: bool) -> None:
    """O3: of a request that is bound, or goes on in a conversation; nobody asks for another's."""
    contents = body_of({"input": [{"type": "message", "id": "msg_1", "content": "a"}], **fields}).contents
    assert [bool(held.marks) for held in (contents, contents.of_input)] == [has_marks, has_marks]


@pytest.mark.parametrize("place", range(3))
def test_what_was_found_to_bind_is_not_taken_back_by_what_does_not(place: int) -> None:
    """S5: wherever it stands among others that have a telling key."""
    loose: list[dict[str, Any]] = [{"container": {"type": "auto"}}, {"file_id": None}]
    assert reasons(input=[*loose[:place], {"file_id": "file_1"}, *loose[place:]]) == (ORIGIN_BOUND,)


@pytest.mark.parametrize("member", ["background_options", "input"])
def test_what_stands_beside_a_schema_is_looked_through_and_the_schema_is_not(member: str) -> None:
    """S5: where nothing is read and below what is encoded, too."""
    described: Any = {"parameters": {"a": {"file_id": "f"}}, "b": [{"c": 1}]}
    holding: Any = {"parameters": {}, "b": [{"file_id": "f"}]}
    fields: list[dict[str, Any]] = [
        {member: [{"data": held}] if member == "input" else held} for held in (described, holding)
    ]
    assert [reasons(**held) for held in fields] == [(), (ORIGIN_BOUND,)]


def test_nesting_of_any_depth_is_walked() -> None:
    """S5, S7: as deep as the interpreter reads."""
    nested: Any = {"file_id": "file_1"}
    for _ in range(200):
        nested = {"a": [nested]}

    assert reasons(input=[{"role": "user", "content": nested}]) == (ORIGIN_BOUND,)


# --- S6: tools that write -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tools", "writes"),
    [
        pytest.param([{"type": "mcp", "server_url": "https://x"}], True, id="mcp"),
        pytest.param([{"type": "code_interpreter", "container": {"type": "auto"}}], True, id="code-interpreter"),
        pytest.param([{"type": "shell", "environment": {"type": "container_auto"}}], True, id="hosted-shell"),
        pytest.param([{"type": "shell"}], True, id="shell-of-unknown-place"),
        pytest.param([{"type": "shell", "environment": None}], True, id="shell-of-null-place"),
        pytest.param([{"type": "shell", "environment": {"type": "local"}}], False, id="local-shell"),
        pytest.param([{"type": "local_shell"}], False, id="the-clients-shell"),
        pytest.param([{"type": "function", "name": "mcp"}], False, id="function"),
        pytest.param([{"type": "web_search"}, {"type": "image_generation"}], False, id="tools-that-read"),
        pytest.param([{"type": "web_search"}, {"type": "mcp"}], True, id="among-others"),
        pytest.param([{"type": "namespace", "tools": [{"type": "mcp"}]}], True, id="in-a-group"),
        pytest.param([{"type": "namespace", "tools": [{"type": "g", "tools": [{"type": "mcp"}]}]}], True, id="in-two"),
        pytest.param(
            [{"type": "namespace", "tools": [{"type": "mcp"}]}, {"type": "function"}], True, id="before-others"
        ),
        pytest.param([{"type": ["mcp"]}, "mcp", None, 7], False, id="no-tools"),
        pytest.param([None, {}, "mcp", 7, {"type": "mcp"}], True, id="behind-what-is-none"),
        pytest.param({"type": "mcp"}, False, id="no-list"),
        pytest.param("mcp", False, id="text"),
        pytest.param(None, False, id="null"),
        pytest.param([], False, id="none"),
    ],
)
def test_a_hosted_tool_that_writes_is_not_run_twice(tools: Any, writes: bool) -> None:
    """S6: named by the request or found by a tool search, unless the operator allows it."""
    allowed = StatePolicy(replay_side_effect_tools=True)
    found = [{"type": "tool_search_output", "tools": tools}]

    assert (reasons(tools=tools), reasons(input=found), reasons(tools=tools, policy=allowed)) == (
        (SIDE_EFFECT_TOOL,) if writes else (),
        (SIDE_EFFECT_TOOL,) if writes else (),
        (),
    )


# --- S7 -----------------------------------------------------------------------------------------------------------

NAMES: Final = st.sampled_from(["input", "tools", "type", "id", "content", "role", "store", "prompt", "background"]) | (
    st.sampled_from(["conversation", "container", "file_id", "parameters", "environment", "background_options"])
)
VALUES: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.sampled_from(["mcp", "shell", "reasoning"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=15,
)


@given(st.dictionaries(NAMES, VALUES, max_size=6), st.booleans(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_any_body_gets_its_answer_and_the_same_one_again(
    fields: dict[str, Any], absent_store_is_false: bool, replay_side_effect_tools: bool
) -> None:
    """S7: pure, and total."""
    policy = StatePolicy(absent_store_is_false, replay_side_effect_tools)
    body = body_of(fields)
    answer = eligibility(body, (), policy)

    assert (answer, body.fields) == (eligibility(body_of(fields), (), policy), fields)
