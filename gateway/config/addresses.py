"""Where the gateway listens, and an upstream's HTTP side: its base URL and the extra headers sent to it (H4)."""

import re
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from gateway.config.problems import refusal

_LABEL: Final = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?"
_HOST: Final = rf"(?:{_LABEL}(?:\.{_LABEL})*\.?|\[[0-9A-Fa-f:.]+\])"
_PATH: Final = r"(?:/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*)?"
_URL: Final = re.compile(rf"https?://{_HOST}(?::[0-9]{{1,5}})?{_PATH}")
_URL_FIX: Final = 'write it like "https://api.openai.com/v1"'

_URL_OBJECTIONS: Final = (
    # (what is found in it, the problem, the fix): the first that applies is told
    (re.compile(r"\A(?!https?://)"), "is not an http:// or https:// URL", _URL_FIX),
    (re.compile(r"\A[^/]*//[^/?#]*@"), "carries a user name or password", "take it out and set credential instead"),
    (re.compile(r"[?#]"), "carries a query or a fragment", "end it with the path; extra headers go to headers"),
    (re.compile(r"/responses/*\Z"), "ends with /responses", "leave that off: the gateway appends it"),
)


def check_url(url: str) -> str:
    """The base URL without its trailing slash."""
    for pattern, problem, fix in _URL_OBJECTIONS:
        if pattern.search(url):
            raise refusal(problem, fix)
    if _URL.fullmatch(url) is None or not _authority_is_valid(url):
        raise refusal("is not a valid URL", _URL_FIX)
    return url.rstrip("/")


def _authority_is_valid(url: str) -> bool:
    """What the pattern cannot tell: the port's range, the form of an IPv6 address, a name that can be looked up."""
    try:
        parts = urlsplit(url)
        (parts.hostname or "").encode("idna")
        return parts.port != 0
    except ValueError:  # UnicodeError is one
        return False


BaseUrl = Annotated[str, AfterValidator(check_url)]


def check_host(host: str) -> str:
    """What may be looked up, if it is there or not: Python's own look-up fails at anything else."""
    try:
        host.encode("idna")
    except UnicodeError:
        is_host = False
    else:
        is_host = "\0" not in host
    if not is_host:
        raise refusal("is no host name: a part of it is empty or too long", 'write an address like "127.0.0.1"')
    return host


Host = Annotated[str, Field(min_length=1), AfterValidator(check_host)]

_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE: Final = re.compile(r"[!-~](?:[\t -~]*[!-~])?")

_REFUSED_HEADERS: Final = {
    # RFC 9110, section 7.6.1: they speak of one connection, which is not the configuration's to describe
    **dict.fromkeys(
        ("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"),
        "is a hop-by-hop header",
    ),
    **dict.fromkeys(
        ("accept", "accept-encoding", "content-encoding", "content-length", "content-type", "expect", "host"),
        "is a header that the gateway sets itself",
    ),
    # one value for all requests would make an upstream take different turns for the same
    **dict.fromkeys(("idempotency-key", "x-codex-turn-state"), "is a header that belongs to a single request"),
}

_CREDENTIAL_WORD: Final = re.compile(
    r"(?:\A|[-_])(?:auth|authorization|authenticate|apikey|cookies?|credentials?|key|password|secret|token)(?:[-_]|\Z)"
)


def check_header_name(name: str) -> str:
    """The name in lower case."""
    lower = name.lower()
    if _HEADER_NAME.fullmatch(name) is None:
        raise refusal("is not a header name", "use letters, digits and hyphens")
    if lower in _REFUSED_HEADERS:
        raise refusal(_REFUSED_HEADERS[lower], "remove it")
    if _CREDENTIAL_WORD.search(lower):
        raise refusal("looks like a credential", "remove it and set the route's credential instead")
    return lower


def check_credential_header(name: str) -> str:
    """The name in lower case of a header that carries a credential, which may well look like one."""
    lower = name.lower()
    if _HEADER_NAME.fullmatch(name) is None:
        raise refusal("is not a header name", "use letters, digits and hyphens")
    if lower in _REFUSED_HEADERS:
        raise refusal(_REFUSED_HEADERS[lower], 'write "authorization", or what the upstream asks for')
    return lower


def check_header_value(value: str) -> str:
    """The value as it is: nothing in it may end the header or its line."""
    if _HEADER_VALUE.fullmatch(value) is None:
        fix = "use visible ASCII characters, with spaces only between them, on one line"
        raise refusal("is not a header value", fix)
    return value


def check_headers(headers: object) -> object:
    """The table as it is: names that differ in case only are one header, of which one value would be lost."""
    names = [str(name).lower() for name in headers] if isinstance(headers, dict) else []
    if len(set(names)) < len(names):
        raise refusal("sets a header twice, in different case", "remove one of the two")
    return headers


HeaderName = Annotated[str, AfterValidator(check_header_name)]
CredentialHeader = Annotated[str, AfterValidator(check_credential_header)]
HeaderValue = Annotated[str, AfterValidator(check_header_value)]
Headers = Annotated[dict[HeaderName, HeaderValue], BeforeValidator(check_headers)]
