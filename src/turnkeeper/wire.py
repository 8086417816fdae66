"""What every model that crosses a border has in common: frozen, camelCase in JSON, absent instead of null."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, StringConstraints, model_serializer
from pydantic.alias_generators import to_camel

NAME_PATTERN = r"^[A-Za-z0-9_~-][A-Za-z0-9._~-]{0,127}$"
"""What instance names and ids look like: 1 to 128 of `A-Z a-z 0-9 . _ ~ -`.

A leading dot is refused because HTTP clients fold `.` and `..` out of a path, and ids are paths.
"""

Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
"""An instance name, a run id or a key: see `NAME_PATTERN`."""


class WireModel(BaseModel):
    """A frozen value with camelCase JSON names that reads JSON written by an older or newer release.

    Unknown fields are ignored, because a history may hold what another release wrote. A field that is None is left out
    of the JSON: clients refuse an optional field sent as null (clients.md 1.2), and history is paid for by the byte.
    """

    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True, serialize_by_alias=True
    )

    def kept_nulls(self) -> frozenset[str]:
        """Return the JSON names whose null means something, such as a tool's output, and is therefore written."""
        return frozenset()

    @model_serializer(mode="wrap")
    def _leave_out_nulls(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = serialize(self)
        kept = self.kept_nulls()
        return {name: value for name, value in fields.items() if value is not None or name in kept}
