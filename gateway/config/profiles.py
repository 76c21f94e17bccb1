"""Profiles: what differs between upstreams that speak the Responses API, as data. A route takes what it does not say
itself from its profile; `openai` is the one it has if it names none.

    profile = "azure"  -->  credential_header = "api-key", credential_form = "plain", …

Only what the upstreams' own documentation says. All of them serve `/responses` below their base URL and answer in the
same events; what a profile does not set is as it stands in `tables.py`. A base URL is taken from a profile that is
written out only: a key for another upstream must not go to OpenAI because a line was forgotten.
"""

from collections.abc import Mapping
from typing import Any, Final

DEFAULT_PROFILE: Final = "openai"
BASE_URL: Final = "base_url"

PROFILES: Final[Mapping[str, Mapping[str, Any]]] = {
    # what is not said here is stored by default (S1), and its key goes up as `authorization: Bearer KEY`
    "openai": {BASE_URL: "https://api.openai.com/v1"},
    # each resource has a host of its own: https://NAME.openai.azure.com/openai/v1
    "azure": {"credential_header": "api-key", "credential_form": "plain"},
    # a WebSocket lives for 25 minutes: no turn begins on one that is older than 20
    "xai": {BASE_URL: "https://api.x.ai/v1", "socket_age_limit": 1200.0},
    # keeps no response, whatever a request says of `store`
    "openrouter": {BASE_URL: "https://openrouter.ai/api/v1", "stores_by_default": False},
    # keep none unless they were started so, and ask for no key unless they were started with one
    "vllm": {BASE_URL: "http://127.0.0.1:8000/v1", "credential": "none", "stores_by_default": False},
    "ollama": {BASE_URL: "http://127.0.0.1:11434/v1", "credential": "none", "stores_by_default": False},
}


def with_profile(written: Any) -> Any:
    """A route's table with its profile below it; what is no table, or names no known profile, as it is."""
    if not isinstance(written, dict):
        return written
    named = written.get("profile")
    profile = PROFILES.get(named if isinstance(named, str) else DEFAULT_PROFILE, {})
    return {**{key: value for key, value in profile.items() if key != BASE_URL or named is not None}, **written}
