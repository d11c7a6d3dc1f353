"""The two bases of every model here, and the field types they share.

One rule: what users write is strict (unknown fields and wrong types are refused), what is observed is lenient (a newer
version may have written it). Everything is frozen, camelCase outside, snake_case inside.
"""

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer
from pydantic.alias_generators import to_camel

from crds import timestamps

DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
"""RFC 1123: the name of a namespace or a queue."""


Time = Annotated[datetime, PlainSerializer(timestamps.format_time, return_type=str, when_used="json")]
"""A metav1.Time: whole seconds, UTC."""
Name = Annotated[str, Field(max_length=63, pattern=DNS_LABEL)]
"""A DNS label."""
ClassName = Annotated[str, Field(max_length=253)]
"""The name of a PriorityClass."""
Text = Annotated[str, Field(max_length=1024)]
"""A sentence for people."""
LONGEST_CONDITION = 32_768
"""Characters of a condition's message, as in metav1.Condition."""


_BASE = ConfigDict(
    frozen=True,
    alias_generator=to_camel,
    validate_by_name=True,
    validate_by_alias=True,
    # The docstrings of fields are what `kubectl explain` shows.
    use_attribute_docstrings=True,
)


class Written(BaseModel):
    """What a user writes."""

    model_config = ConfigDict(**_BASE, extra="forbid", strict=True)


class Observed(BaseModel):
    """What the system writes."""

    model_config = ConfigDict(**_BASE, extra="ignore")

    def manifest(self) -> dict[str, Any]:
        """As JSON values with camelCase names; what is unset is left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)
