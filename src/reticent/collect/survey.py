"""The survey: what devices are asked, how often, by which mechanisms, under which epsilon.

A survey is a text, JSON with sorted fields and no spaces, that means the same on the operator's machine and
on every device. Its id is the first eight bytes of SHA-256 of the text; every report names it, so that nobody
can change a survey under reports that were given for another.

A survey may learn (`waves`): then a few of its reporters answer it first, the others a follow-up, which is a
survey of its own text and id, of the same series.

Privacy: one report is epsilon-LDP between any two records (`Record`); a device that answers in every period
spends epsilon times the number of periods.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from reticent.arguments import whole
from reticent.collect import instruments
from reticent.collect.instruments import Instrument
from reticent.collect.waves import LAST_PERIOD, Follows, Waves
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
MOST_COLUMNS = 1 << 20  # symbols and categories of all attributes, in a device and a collector
MOST_CELLS = 1 << 24  # columns times groups
_MOST_SECONDS = 1 << 40
_PLAIN = ("epsilon", "start", "period_s", "periods", "sample_size", "assigned", "groups")  # plain fields


@dataclass(frozen=True)
class Survey(Local):
    """The signed description of a survey, which collector and devices share.

    Args:
        name: Name of the survey; for `version` and `purpose`, too, see `Published`.
        attributes: Attributes of a record.
        instruments: Mechanism of each attribute.
        epsilon: LDP level of the report of one period.
        start: Beginning of the first period, in seconds since 1970.
        period_s: Length of a period in seconds; a device reports once in each.
        periods: Number of periods.
        sample_size: Number of attributes in a report.
        assigned: True if the survey draws which attributes are reported (see `lots`), False if the device
            does.
        groups: Number of groups of reporters, a power of two; with more than one, estimates may be medians
            over groups.
        key: Public key of the survey's draws, 32 bytes.
        waves: Waves of a survey that learns, if it does.
        follows: Survey and period that a follow-up follows.

    Raises:
        GuaranteeError: the mechanisms of a report may spend more than epsilon together.
    """

    what = field = study = "survey"
    head = b"reticent-survey/v1\n"
    names = (*WORDS, *_PLAIN, "key", "attributes", "waves", "follows")
    optional = ("waves", "follows")

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
    waves: Waves | None = None
    follows: Follows | None = None

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
        self._check_waves()
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

    def _check_waves(self) -> None:
        numbers = {one.name for one in self.attributes if isinstance(one, Number)}
        if self.waves is not None and not numbers.issuperset(self.waves.learns):
            raise ParameterError("waves.learns must be names of attributes that are numbers")
        if self.follows is None:
            return
        if self.waves is None:
            raise ParameterError("a follow-up must be of a survey that learns: waves is missing")
        low = 1 if self.waves.source == LAST_PERIOD else 0
        whole("follows.period", self.follows.period, low=low, high=self.periods - 1)
        if sorted(told[0] for told in self.follows.shapes) != sorted(self.waves.learns):
            raise ParameterError("follows.shapes must be one for each name of waves.learns")

    # Text

    def _fields(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in (*WORDS[1:], *_PLAIN)}
        for name in self.optional:
            if getattr(self, name) is not None:
                plain[name] = getattr(self, name).fields()
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
            if categories > MOST_COLUMNS:  # checked before any table is built for them
                raise ParameterError(f"attributes must have at most {MOST_COLUMNS} categories together")
            attributes.append(attribute)
            made.append(instruments.made(attribute, one.get("mechanism")))
        return cls(
            attributes=tuple(attributes),
            instruments=tuple(made),
            key=texts.hexadecimal("key", given["key"]),
            waves=Waves.of(given["waves"]) if "waves" in given else None,
            follows=Follows.of(given["follows"]) if "follows" in given else None,
            **{name: given[name] for name in (*WORDS[1:], *_PLAIN)},
        )

    # Meaning

    @property
    def guarantee(self) -> LocalDP:
        """Privacy guarantee of one report."""
        from reticent.privacy.guarantees import LocalDP  # not needed on a device

        return LocalDP(self.epsilon, unit="one report")

    @property
    def series(self) -> str:
        """Key under which a device stores its reports; a follow-up has that of its survey."""
        return (self.id if self.follows is None else self.follows.survey).hex()

    def check_follows(self, survey: Survey) -> None:
        """Refuse a follow-up that differs from this survey in more than its mechanisms.

        Raises:
            GuaranteeError: it changes anything else: epsilon, periods, lots, who is in which wave.
        """
        plain = replace(self, instruments=survey.instruments, sample_size=survey.sample_size, follows=None)
        if self.follows is None or self.follows.survey != survey.id or plain.text != survey.text:
            raise GuaranteeError("a follow-up must be the survey that it names but for its mechanisms")

    def is_first(self, ids: NDArray[np.uint64], periods: Any) -> NDArray[np.bool_]:
        """Return which reporters answer the survey itself in a period, and not a follow-up."""
        if self.waves is None:
            return np.ones(ids.shape, dtype=np.bool_)
        found = self.lots.first_wave(ids, periods, self.waves.share)
        return found | (np.asarray(periods) == 0) if self.waves.source == LAST_PERIOD else found

    def period_at(self, seconds: float) -> int:
        """Return the number of the period at a time; below 0 or from `periods` on outside of the survey."""
        return int((seconds - self.start) // self.period_s)

    def checked_period(self, period: int) -> int:
        """Validate the number of a period of this survey, and return it."""
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
