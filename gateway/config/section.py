"""What all tables of the file have in common."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A table of the file: unknown keys are errors, nothing is coerced but whole seconds to a float, nothing changes
    after it was read, and a validation error never shows the value it is about (it may be a secret)."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
        defer_build=True,  # at the first use: most tables are only read within another's, and need no validator
    )
