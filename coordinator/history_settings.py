"""The settings about the history of jobs, as a part of `coordinator.settings.Settings`.

One rule: the URL of the database may have a password, so the URL is on no command line and in no message.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import pydantic
from pydantic import BeforeValidator, Field

from coordinator.errors import SettingsError
from crds.resources import resource_names

_PRICE = re.compile(r"[0-9]{1,12}(\.[0-9]{1,12})?")


def parse_prices(text: str) -> dict[str, Decimal]:
    """Return the prices in a text such as `nvidia.com/gpu=1.5,cpu=0.02`. Raises ValueError, which names the part of the
    text that is wrong."""
    prices: dict[str, Decimal] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, equals, price = (each.strip() for each in part.partition("="))
        if not equals:
            raise ValueError(f"prices: {part!r} is not RESOURCE=PRICE, as in nvidia.com/gpu=1.5")
        if not resource_names.is_limit(name):
            raise ValueError(f"prices: {resource_names.unknown(name)}")
        if not _PRICE.fullmatch(price):
            raise ValueError(f"prices: {name}: {price!r} is not a number, as in 1.5")
        prices[resource_names.canonical(name)] = Decimal(price)
    return prices


def _as_text(value: Any) -> Any:
    """Return a table of a settings file as the text that stands for it."""
    if not isinstance(value, Mapping):
        return value
    return ",".join(f"{name}={_number(price)}" for name, price in value.items())


def _number(price: Any) -> str:
    return f"{Decimal(str(price)):f}" if isinstance(price, float) else str(price)


class HistorySettings(pydantic.BaseModel):
    """The settings of an admin about the history of jobs."""

    # Commands validate `Settings` alone, which is built at once.
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", defer_build=True)

    history_url: str = Field(
        default="",
        description="database of the history of jobs: sqlite:////FOLDER/history.sqlite, or "
        "postgresql://USER:PASSWORD@HOST/DATABASE (13 or newer); empty: none (torchq local up has its own)",
    )
    history_url_file: str = Field(
        default="", description="file that contains this URL, such as a mounted secret; used if history_url is not set"
    )
    history_days: Annotated[int, Field(ge=0, le=36_500)] = Field(
        default=400, description="for how many days after its end a job stays in the history; 0: for ever"
    )
    history_patience: Annotated[float, Field(ge=0, le=604_800)] = Field(
        default=3600.0,
        description="how long the deletion of a job whose time to live is over waits at most for the recorder, while "
        "its end is not in the history; 0: not at all",
    )
    prices: Annotated[str, BeforeValidator(_as_text)] = Field(
        default="",
        description="what an hour costs in torchq usage: nvidia.com/gpu=1.5,cpu=0.02 (of one GPU, one core; of memory "
        "and storage one GiB); a settings file may have a table",
    )

    @cached_property
    def price_table(self) -> Mapping[str, Decimal]:
        """The prices by the canonical name of the resource, per hour of one unit of the resource."""
        return parse_prices(self.prices)

    @pydantic.field_validator("prices")
    @classmethod
    def _usable_prices(cls, text: str) -> str:
        parse_prices(text)
        return text


def history_url(settings: HistorySettings) -> str:
    """Return the URL of the database, from its file if the settings name one; empty if there is none. Raises
    SettingsError, which names the file, if the file cannot be read."""
    if settings.history_url or not settings.history_url_file:
        return settings.history_url
    file = settings.history_url_file
    try:
        url = Path(file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise SettingsError(f"the file of the history's URL, {file} (history_url_file): {reason}") from None
    if not url:
        raise SettingsError(f"the file of the history's URL, {file} (history_url_file), is empty")
    return url


def redact(url: str) -> str:
    """Return a URL as it may be shown: without its user, password and options."""
    scheme, separator, rest = url.partition("://")
    rest, _, options = rest.partition("?")
    # An @ behind a question mark: the password may be on either side of it.
    is_clear = separator and re.fullmatch(r"[A-Za-z0-9+]+", scheme) and "@" not in options
    return f"{scheme}://{rest.rpartition('@')[2].partition('#')[0]}" if is_clear else "(not shown)" if url else ""
