"""Secrets as the file names them: by `env` or `file`, and `inline` only if the file says that this is wanted (C1).

    { env = "NAME" } | { file = "PATH" } | { inline = "TEXT" }  --resolve-->  the secret itself

They are resolved while the file is validated, so that a missing secret is reported together with everything else.
A relative file starts at the directory of the configuration file. Neither a secret nor what the file says in place of
one is ever quoted: people do write the secret where its name belongs.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, cast

from pydantic import BeforeValidator, GetCoreSchemaHandler, GetPydanticSchema, ValidationInfo
from pydantic_core import CoreSchema, core_schema

from gateway.config.files import Files
from gateway.config.problems import refusal
from gateway.config.section import Section

SECRET_BYTES_MAX: Final = 65536
"""No key is longer than a header may be; a larger file is the wrong file."""

_HEADER_TEXT: Final = re.compile(r"[!-~]+")
_ENVIRONMENT_NAME: Final = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
"""A variable's name that is safe to quote; anything else in its place may be the secret itself."""

_NAME_A_SOURCE: Final = 'write { env = "NAME" } or { file = "PATH" }'


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the file refers to outside itself, and for how many workers it is; passed to the validators as their
    context."""

    environ: Mapping[str, str]
    directory: Path
    inline_is_allowed: bool
    files: Files = field(default_factory=Files)
    workers: int = 1


class SecretSource(Section):
    """Where a secret is found: exactly one of the three."""

    env: str | None = None
    file: str | None = None
    inline: str | None = None


def resolve(source: SecretSource, surroundings: Surroundings) -> str:
    """The secret itself, without white space around it."""
    secret = _text_of(source, surroundings)
    if _HEADER_TEXT.fullmatch(secret) is None:
        fix = "use visible ASCII characters only, on one line, without spaces"
        raise refusal("its secret holds characters that a header cannot carry", fix)
    return secret


def resolve_line(source: SecretSource, surroundings: Surroundings) -> str:
    """The same for what no header carries: any characters, on one line."""
    secret = _text_of(source, surroundings)
    if not secret.isprintable():
        raise refusal("its secret has more than one line, or control characters", "write it on one line")
    return secret


def _text_of(source: SecretSource, surroundings: Surroundings) -> str:
    given = [name for name in SecretSource.model_fields if getattr(source, name) is not None]
    if len(given) != 1:
        raise refusal(f"names {len(given)} sources instead of one", _NAME_A_SOURCE)
    if source.env is not None:
        return _not_empty(_from_environment(source.env, surroundings))
    if source.file is not None:
        return _not_empty(_from_file(source.file, surroundings))
    if not surroundings.inline_is_allowed:
        fix = f"{_NAME_A_SOURCE}, or set server.allow_inline_secrets = true"
        raise refusal("has its secret in the file itself, which is not allowed", fix)
    return _not_empty(source.inline or "")


def _from_environment(name: str, surroundings: Surroundings) -> str:
    secret = surroundings.environ.get(name, "")
    if secret.strip():
        return secret
    variable = name if _ENVIRONMENT_NAME.fullmatch(name) else "variable it names"
    raise refusal(f"the environment's {variable} is unset or empty", "set it before the gateway starts")


def _from_file(named: str, surroundings: Surroundings) -> str:
    """Regular files only: a pipe could be waited for without end, and could not be read again at a reload."""
    path, files = surroundings.directory / named, surroundings.files
    try:
        if files.is_file(path):
            return _decoded(files.read(path, SECRET_BYTES_MAX + 1))
    except OSError as error:
        why = error.strerror or "unknown reason"
        raise refusal(f"its file cannot be read ({why})", "let the gateway's user read that file") from None
    fix = f"create it; a relative path starts at {surroundings.directory.absolute()}"
    raise refusal("its file does not exist or is not a regular file", fix)


def _decoded(content: bytes) -> str:
    """Latin-1 takes every byte; what is no header text is refused later, without a decoding error that quotes it."""
    if len(content) > SECRET_BYTES_MAX:
        raise refusal(f"its file is larger than {SECRET_BYTES_MAX} bytes", "name the file that holds only the secret")
    return content.decode("latin-1")


def _not_empty(text: str) -> str:
    secret = text.strip()
    if not secret:
        raise refusal("its secret is empty", "put the secret in its place")
    return secret


def _refuse_plain_text(value: object) -> object:
    if isinstance(value, str):
        raise refusal("is plain text in place of a secret's source", _NAME_A_SOURCE)
    return value


def _resolved_by(resolving: Callable[[SecretSource, Surroundings], str]) -> GetPydanticSchema:
    def in_context(source: SecretSource, info: ValidationInfo) -> str:
        return resolving(source, cast("Surroundings", info.context))

    def schema(_source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        written = handler.generate_schema(Annotated[SecretSource, BeforeValidator(_refuse_plain_text)])
        return core_schema.with_info_after_validator_function(in_context, written)

    return GetPydanticSchema(schema)


Secret = Annotated[str, _resolved_by(resolve)]
"""A secret's text, written as a `SecretSource`; validate it with `Surroundings` as the context."""
SecretLine = Annotated[str, _resolved_by(resolve_line)]
"""The same for one that may have spaces: a database's connection string."""


def _credential_is_none(value: object) -> object:
    return None if value == "none" else value


Credential = Annotated[Secret | None, BeforeValidator(_credential_is_none)]
"""A route's secret, or None, written "none", for an upstream that asks for no key."""
