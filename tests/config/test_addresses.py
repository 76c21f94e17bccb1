import pytest

from config.samples import parsed, problems, route


@pytest.mark.parametrize(
    "url", ["https://a.b", "http://localhost:1/", "https://a_b.c.:65535/x/%20y", "http://10.0.0.1/v1/"]
)
def test_a_base_url_loses_its_trailing_slash_only(url: str) -> None:
    assert parsed(route(f'base_url = "{url}"')).routes["openai"].base_url == url.rstrip("/")


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("", "is not an http:// or https:// URL"),
        ("api.openai.com/v1", "is not an http:// or https:// URL"),
        ("ftp://host/v1", "is not an http:// or https:// URL"),
        ("wss://host/v1", "is not an http:// or https:// URL"),
        (" https://host", "is not an http:// or https:// URL"),
        ("https://user:word@host/v1", "carries a user name or password"),
        ("https://host/v1?a=b", "carries a query or a fragment"),
        ("https://host/v1#a", "carries a query or a fragment"),
        ("https://host/v1/responses/", "ends with /responses"),
        ("https://", "is not a valid URL"),
        ("https:///v1", "is not a valid URL"),
        ("https://:80/v1", "is not a valid URL"),
        ("https://ho st/v1", "is not a valid URL"),
        ("https://host/v1\\n", "is not a valid URL"),
        ("https://a..b/v1", "is not a valid URL"),
        ("https://-a/v1", "is not a valid URL"),
        ("https://host:0/v1", "is not a valid URL"),
        ("https://host:65536/v1", "is not a valid URL"),
        ("https://host:port/v1", "is not a valid URL"),
        ("https://[::g]/v1", "is not a valid URL"),
        ("https://[:::1]/v1", "is not a valid URL"),
        ("https://höst/v1", "is not a valid URL"),
    ],
)
def test_a_bad_url_is_refused(url: str, problem: str) -> None:
    (line,) = problems(route(f'base_url = "{url}"'))

    assert line.startswith(f"gateway.toml: routes.openai.base_url: {problem}; ")


@pytest.mark.parametrize(
    ("header", "path", "problem"),
    [
        ('"Authorization" = "x"', "Authorization", "looks like a credential"),
        ('"x-api-key" = "x"', "x-api-key", "looks like a credential"),
        ('"Cookie" = "x"', "Cookie", "looks like a credential"),
        ('"x-auth-token" = "x"', "x-auth-token", "looks like a credential"),
        ('"Proxy-Authorization" = "x"', "Proxy-Authorization", "looks like a credential"),
        ('"Connection" = "x"', "Connection", "is a hop-by-hop header"),
        ('"transfer-encoding" = "x"', "transfer-encoding", "is a hop-by-hop header"),
        ('"Host" = "x"', "Host", "is a header that the gateway sets itself"),
        ('"accept-encoding" = "gzip"', "accept-encoding", "is a header that the gateway sets itself"),
        ('"idempotency-key" = "x"', "idempotency-key", "is a header that belongs to a single request"),
        ('"x y" = "x"', '"x y"', "is not a header name"),
        ('"x\\n" = "x"', '"x\\n"', "is not a header name"),
        ('"" = "x"', '""', "is not a header name"),
        ('"x" = ""', "x", "is not a header value"),
        ('"x" = "a\\r\\nb: c"', "x", "is not a header value"),
        ('"x" = " a"', "x", "is not a header value"),
        ('"x" = "ü"', "x", "is not a header value"),
        ('"x" = 1', "x", "must be text"),
    ],
)
def test_a_bad_header_is_refused(header: str, path: str, problem: str) -> None:
    (line,) = problems(route(f"headers = {{ {header} }}"))

    assert line.startswith(f"gateway.toml: routes.openai.headers.{path}: {problem}; ")


def test_ordinary_headers_are_no_credentials() -> None:
    headers = 'headers = { "x-author" = "a", "x-max-tokens" = "1", "x-keyboard" = "b" }'

    assert len(parsed(route(headers)).routes["openai"].headers) == 3


def test_one_header_in_two_spellings_is_refused() -> None:
    assert problems(route('headers = { "X-Team" = "a", "x-team" = "b" }')) == [
        "gateway.toml: routes.openai.headers: sets a header twice, in different case; remove one of the two"
    ]
