"""The two base classes of all API models, and the field types that the models share.

One rule: models of objects that users write are strict and refuse unknown fields and wrong types. Models of objects
that torchq writes are lenient, since a newer version may have written the object. All models are frozen; names are
camelCase in JSON.
"""

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer
from pydantic.alias_generators import to_camel

from crds import timestamps
from crds.label_names import DNS_LABEL

Time = Annotated[datetime, PlainSerializer(timestamps.format_time, return_type=str, when_used="json")]
"""A metav1.Time in UTC with whole seconds."""
Name = Annotated[str, Field(max_length=63, pattern=DNS_LABEL)]
"""A DNS label."""
ClassName = Annotated[str, Field(max_length=253)]
"""The name of a PriorityClass, or of a queue of a gang scheduler."""
LabelName = Annotated[str, Field(max_length=317)]
"""The name of a label of nodes."""
Text = Annotated[str, Field(max_length=1024)]
"""A sentence for users."""
LONGEST_CONDITION = 32_768
"""Maximum number of characters of a condition's message, as in metav1.Condition."""


_BASE = ConfigDict(
    frozen=True,
    alias_generator=to_camel,
    validate_by_name=True,
    validate_by_alias=True,
)


class StrictModel(BaseModel):
    """A model of data that a user writes."""

    model_config = ConfigDict(**_BASE, extra="forbid", strict=True)


class LenientModel(BaseModel):
    """A model of data that torchq or the API server writes."""

    model_config = ConfigDict(**_BASE, extra="ignore")

    def manifest(self) -> dict[str, Any]:
        """Return the model as JSON values with camelCase names, without fields that are None."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)
