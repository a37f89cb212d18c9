"""A survey: what devices are asked, how often, by which mechanisms, under which epsilon.

A survey is a text, JSON with sorted fields and no spaces, that means the same on the operator's machine and
on every device. Its id is the first eight bytes of SHA-256 of the text; every report names it, so that nobody
can change a survey under reports that were given for another.

Privacy: one report is epsilon-LDP between any two records (`Record`); a device that answers in every period
spends epsilon times the number of periods.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from reticent.arguments import whole
from reticent.collect import instruments
from reticent.collect.instruments import Instrument
from reticent.errors import GuaranteeError, ParameterError, ParameterTypeError
from reticent.fleet import texts
from reticent.fleet.published import WORDS, Local
from reticent.mechanisms.attributes import Attribute, Category, Number
from reticent.mechanisms.base import checked_epsilon
from reticent.privacy.budget import MAX_UNITS

if TYPE_CHECKING:
    from reticent.privacy.guarantees import LocalDP

FORMAT = 1
MOST_ATTRIBUTES = 256
MOST_PERIODS = 1 << 20
MOST_GROUPS = 1 << 10
MOST_COLUMNS = 1 << 20  # symbols and categories of all attributes, that a device makes and a collector counts
MOST_CELLS = 1 << 24  # times groups
_MOST_SECONDS = 1 << 40
_PLAIN = ("epsilon", "start", "period_s", "periods", "sample_size", "assigned", "groups")  # fields


@dataclass(frozen=True)
class Survey(Local):
    """What is asked, of whom nothing else is known.

    Args:
        name: and `version` and `purpose`, see `Published`.
        attributes: what a record holds.
        instruments: the mechanism of each attribute.
        epsilon: the LDP level of the report of one period.
        start: when the first period begins, in seconds since 1970.
        period_s: how long a period is; a device reports once in each.
        periods: how many there are.
        sample_size: how many attributes a report holds.
        assigned: whether the survey draws which (see `lots`), or the device does.
        groups: a power of two; with more than one, estimates may be medians over groups of reporters.
        key: 32 bytes for the survey's draws, public.

    Raises:
        GuaranteeError: the mechanisms of a report may spend more than epsilon together.
    """

    what = field = study = "survey"
    head = b"reticent-survey/v1\n"
    names = (*WORDS, *_PLAIN, "key", "attributes")

    attributes: tuple[Attribute, ...]
    instruments: tuple[Instrument, ...]
    epsilon: float
    start: int
    period_s: int
    periods: int
    sample_size: int
    key: bytes
    assigned: bool = False
    groups: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < len(self.attributes) <= MOST_ATTRIBUTES:
            raise ParameterError(f"attributes must be 1 to {MOST_ATTRIBUTES}, got {len(self.attributes)}")
        object.__setattr__(self, "epsilon", checked_epsilon(self.epsilon))
        for field, low, high in (
            ("start", 0, _MOST_SECONDS),
            ("period_s", 1, _MOST_SECONDS),
            ("periods", 1, MOST_PERIODS),
            ("groups", 1, MOST_GROUPS),
            ("sample_size", 1, len(self.attributes)),
        ):
            object.__setattr__(self, field, whole(field, getattr(self, field), low=low, high=high))
        if not isinstance(self.assigned, bool):
            raise ParameterTypeError("assigned must be true or false")
        if self.groups & (self.groups - 1):
            raise ParameterError(f"groups must be a power of two, got {self.groups}")
        self._check_key()
        self._check_attributes()
        self._check_length()

    def _check_attributes(self) -> None:
        names = [one.name for one in self.attributes]
        if len(set(names)) != len(names):
            raise ParameterError("attributes must have distinct names")
        if len(self.instruments) != len(self.attributes):
            raise ParameterError("instruments must be one for each attribute")
        for attribute, instrument in zip(self.attributes, self.instruments, strict=True):
            if not instruments.fits(attribute, instrument):
                raise ParameterError(f"the instrument of {attribute.name} must have its bounds or values")
        counted = sum(instruments.columns(one) for one in self.instruments)
        if counted > MOST_COLUMNS or counted * self.groups > MOST_CELLS:
            raise ParameterError(
                f"attributes must have at most {MOST_COLUMNS} symbols and categories together, "
                f"and {MOST_CELLS} in all groups, got {counted} and {counted * self.groups}"
            )
        if self.units * self.periods > MAX_UNITS:
            raise ParameterError(f"epsilon times periods must be at most {MAX_UNITS / 1e12:g}")
        dearest = sorted((Fraction(one.epsilon) for one in self.instruments), reverse=True)
        if sum(dearest[: self.sample_size]) > Fraction(self.epsilon):
            raise GuaranteeError(
                f"the mechanisms of a report may spend more than its epsilon {self.epsilon:g} together"
            )

    # Its text

    def _fields(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in (*WORDS[1:], *_PLAIN)}
        return plain | {
            "format": FORMAT,
            "key": self.key.hex(),
            "attributes": [
                _attribute_fields(attribute) | {"mechanism": instruments.described(instrument)}
                for attribute, instrument in zip(self.attributes, self.instruments, strict=True)
            ],
        }

    @classmethod
    def _of(cls, given: dict[str, Any]) -> Survey:
        if given["format"] != FORMAT or isinstance(given["format"], bool):
            raise ParameterError(f"format must be {FORMAT}, got {given['format']!r:.60}")
        listed = given["attributes"]
        if not isinstance(listed, list) or len(listed) > MOST_ATTRIBUTES:
            raise ParameterError(f"attributes must be a list of at most {MOST_ATTRIBUTES}")
        attributes, made = [], []
        categories = 0
        for place, one in enumerate(listed):
            attribute = _attribute(f"attributes[{place}]", one)
            categories += _categories(attribute)
            if categories > MOST_COLUMNS:  # before any table is made for them
                raise ParameterError(f"attributes must have at most {MOST_COLUMNS} categories together")
            attributes.append(attribute)
            made.append(instruments.made(attribute, one.get("mechanism")))
        return cls(
            attributes=tuple(attributes),
            instruments=tuple(made),
            key=texts.hexadecimal("key", given["key"]),
            **{name: given[name] for name in (*WORDS[1:], *_PLAIN)},
        )

    # What it means

    @property
    def guarantee(self) -> LocalDP:
        """What one report keeps."""
        from reticent.privacy.guarantees import LocalDP  # a device never asks

        return LocalDP(self.epsilon, unit="one report")

    def period_at(self, seconds: float) -> int:
        """The number of the period at a time; below 0 or from `periods` on outside of the survey."""
        return int((seconds - self.start) // self.period_s)

    def checked_period(self, period: int) -> int:
        """The number of a period of this survey, or an error."""
        return whole("period", period, low=0, high=self.periods - 1)


def _categories(attribute: Attribute) -> int:
    if isinstance(attribute, Number):
        return 0
    return attribute.values if isinstance(attribute.values, int) else len(attribute.values)


def _attribute_fields(attribute: Attribute) -> dict[str, Any]:
    if isinstance(attribute, Number):
        return {"name": attribute.name, "bounds": list(attribute.bounds)}
    values = attribute.values if isinstance(attribute.values, int) else list(attribute.values)
    fields: dict[str, Any] = {"name": attribute.name, "values": values}
    if attribute.fallback is not None:
        fields["fallback"] = attribute.fallback
    return fields


def _attribute(where: str, given: Any) -> Attribute:
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise ParameterError(f"{where} must be an object with a name")
    try:
        if "bounds" in given:
            texts.checked_fields(where, given, ("name", "bounds", "mechanism"))
            return Number(given["name"], given["bounds"])
        texts.checked_fields(where, given, ("name", "values", "fallback", "mechanism"), ("fallback",))
        return Category(given["name"], given["values"], given.get("fallback"))
    except (ParameterError, ParameterTypeError) as error:
        raise ParameterError(f"{where}: {error}") from error
