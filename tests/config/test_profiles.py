"""What a route has from its profile (C1): the values of each, what a route may say itself, and what stays asked for."""

from typing import Any, get_args

import pytest

from config.samples import ACCOUNT, ENVIRON, KEY, MODEL, parsed, problems, route
from gateway import limits
from gateway.config import RouteConfig
from gateway.config.profiles import PROFILES
from gateway.config.tables import RouteTable

CREDENTIAL = 'credential = { env = "OPENAI_API_KEY" }'


def file(*lines: str) -> str:
    written = "\n".join(lines)
    return f'{ACCOUNT}{KEY}[routes.openai]\nprice = "free"\n{written}\n{MODEL}'


def route_of(*lines: str) -> RouteConfig:
    return parsed(file(*lines)).routes["openai"]


def facts(found: RouteConfig) -> dict[str, Any]:
    """What profiles differ in."""
    return {
        "base_url": found.base_url,
        "credential": found.credential,
        "header": f"{found.credential_header} {found.credential_form}",
        "stores": found.stores_by_default,
        "age": found.socket_age_seconds,
    }


BEARER = "authorization bearer"
KEY_OF_ROUTE = ENVIRON["OPENAI_API_KEY"]
AGE = limits.UPSTREAM_SOCKET_SECONDS_MAX


@pytest.mark.parametrize(
    ("lines", "base_url", "credential", "header", "stores", "age"),
    [
        (('profile = "openai"', CREDENTIAL), "https://api.openai.com/v1", KEY_OF_ROUTE, BEARER, True, AGE),
        (
            ('profile = "azure"', CREDENTIAL, 'base_url = "https://n.openai.azure.com/openai/v1"'),
            "https://n.openai.azure.com/openai/v1",
            KEY_OF_ROUTE,
            "api-key plain",
            True,
            AGE,
        ),
        (('profile = "xai"', CREDENTIAL), "https://api.x.ai/v1", KEY_OF_ROUTE, BEARER, True, 1200.0),
        (('profile = "openrouter"', CREDENTIAL), "https://openrouter.ai/api/v1", KEY_OF_ROUTE, BEARER, False, AGE),
        (('profile = "vllm"',), "http://127.0.0.1:8000/v1", None, BEARER, False, AGE),
        (('profile = "ollama"',), "http://127.0.0.1:11434/v1", None, BEARER, False, AGE),
    ],
)
def test_a_profile_says_what_the_route_leaves_out(
    lines: tuple[str, ...], base_url: str, credential: str | None, header: str, stores: bool, age: float
) -> None:
    """C1."""
    assert facts(route_of(*lines)) == {
        "base_url": base_url,
        "credential": credential,
        "header": header,
        "stores": stores,
        "age": age,
    }


def test_a_route_that_names_no_profile_is_like_openai() -> None:
    assert route_of('base_url = "https://api.openai.com/v1"', CREDENTIAL) == route_of('profile = "openai"', CREDENTIAL)


def test_what_a_route_says_itself_stands() -> None:
    lines = ('base_url = "http://gpu.test/v1"', CREDENTIAL, "stores_by_default = true", "socket_age_limit = 60")
    forms = ('credential_header = "X-API-Key"', 'credential_form = "plain"')
    assert facts(route_of('profile = "vllm"', *lines, *forms)) == {
        "base_url": "http://gpu.test/v1",
        "credential": KEY_OF_ROUTE,
        "header": "x-api-key plain",
        "stores": True,
        "age": 60.0,
    }


def test_a_base_url_is_taken_from_a_profile_that_is_written_out_only() -> None:
    """A key for another upstream must not go to OpenAI because a line was forgotten."""
    assert problems(file(CREDENTIAL)) == [
        'gateway.toml: routes.openai.base_url: is missing; add base_url = "https://api.openai.com/v1"'
    ]
    assert problems(file(CREDENTIAL, 'profile = "azure"'))[0].startswith("gateway.toml: routes.openai.base_url: is ")


def test_a_profile_that_nobody_knows_is_told() -> None:
    assert problems(route('profile = "azur"')) == [
        'gateway.toml: routes.openai.profile: is not one of the words allowed here; did you mean "azure"?'
    ]
    assert problems(route("profile = 7"))[0].startswith("gateway.toml: routes.openai.profile: is not one of the words")


@pytest.mark.parametrize("name", ["host", "content-length", "api key", ""])
def test_a_credential_goes_into_no_header_of_the_gateways_own(name: str) -> None:
    (line,) = problems(route(f'credential_header = "{name}"'))
    assert line.startswith("gateway.toml: routes.openai.credential_header: is ")


def test_no_header_of_a_routes_own_takes_the_credentials_place() -> None:
    lines = ('credential_header = "X-Api"', 'headers = { "x-api" = "mine", "x-other" = "fine" }')
    assert problems(route(*lines)) == [
        "gateway.toml: routes.openai.headers.x-api: is the header that carries the credential; remove it"
    ]


def test_every_profile_may_be_written_and_sets_what_a_route_may_say() -> None:
    words = get_args(RouteTable.model_fields["profile"].annotation)
    assert list(words) == list(PROFILES)
    assert {key for profile in PROFILES.values() for key in profile} <= RouteTable.model_fields.keys()
