"""Surveys: every field's rule, one text for one meaning, guarantees that are checked."""

import contextlib
import copy
import hashlib
import json
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reticent.collect import instruments
from reticent.collect.design import designed
from reticent.collect.survey import Survey
from reticent.errors import GuaranteeError, ParameterError, ParameterTypeError
from reticent.fleet.texts import LONGEST_TEXT
from reticent.mechanisms.categorical import KRR
from reticent.mechanisms.numeric.hybrid import Duchi
from reticent.mechanisms.numeric.laplace import Laplace
from reticent.mechanisms.record import Category, Number

from . import fleet

REFUSED = (ParameterError, ParameterTypeError, GuaranteeError)
BASE = json.loads(fleet.mixed(assigned=True, groups=4).text)


def text(fields):
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def changed(path, value):
    """The text of the base survey with one field changed, or left out where the value is `...`."""
    fields = copy.deepcopy(BASE)
    inner = fields
    for step in path[:-1]:
        inner = inner[step]
    if value is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return text(fields)


@pytest.mark.parametrize("kind", fleet.KINDS)
def test_the_text_says_all(kind):
    survey = fleet.single(kind)
    again = Survey.parse(survey.text)
    assert again.text == survey.text
    assert again.id == survey.id == hashlib.sha256(survey.text).digest()[:8]
    assert instruments.described(again.instruments[0]) == instruments.described(survey.instruments[0])


def test_numbers_of_any_type_have_one_text():
    plain = fleet.mixed(groups=4, epsilon=4.0, periods=24)
    other = fleet.mixed(groups=np.int64(4), epsilon=4, periods=np.uint8(24), start=np.int64(fleet.START))
    assert other.text == plain.text


def test_a_changed_byte_changes_the_id_or_is_refused():
    given = fleet.mixed().text
    identity = Survey.parse(given).id
    taken = 0
    for place in range(len(given)):
        other = bytearray(given)
        other[place] ^= 1
        try:
            survey = Survey.parse(bytes(other))
        except REFUSED:
            continue
        taken += 1
        assert survey.id != identity
        assert survey.text == bytes(other)
    assert taken > 50  # digits of the key, letters of the purpose


RULES = [
    (("format",), 2, "format must be 1"),
    (("format",), True, "format must be 1"),
    (("format",), 1.0, "sorted fields"),
    (("format",), ..., "field format is missing"),
    (("more",), 1, "field 'more' is not known"),
    (("name",), "", "name must be 1 to 80"),
    (("name",), "a b", "name must be 1 to 80"),
    (("name",), "-a", "name must be 1 to 80"),
    (("name",), "é", "name must be 1 to 80"),
    (("name",), "a\n", "name must be 1 to 80"),
    (("name",), "a" * 81, "name must be 1 to 80"),
    (("name",), 7, "name must be 1 to 80"),
    (("version",), "", "version must be a printable text of 1 to 80"),
    (("version",), "1\n", "version must be a printable text"),
    (("version",), 1, "version must be a printable text"),
    (("purpose",), "x" * 1001, "purpose must be a printable text of 1 to 1000"),
    (("purpose",), "\u202e", "purpose must be a printable text"),
    (("purpose",), None, "purpose must be a printable text"),
    (("epsilon",), 0.0, "epsilon must be > 0"),
    (("epsilon",), -1.0, "epsilon must be > 0"),
    (("epsilon",), 21.0, "epsilon must be >= 0.0001 and <= 20"),
    (("epsilon",), math.nan, "epsilon must be finite"),
    (("epsilon",), math.inf, "epsilon must be finite"),
    (("epsilon",), 10**400, "epsilon must be finite"),
    (("epsilon",), "4.0", "epsilon must be a number"),
    (("epsilon",), True, "epsilon must be a number"),
    (("epsilon",), 4, "sorted fields"),
    (("start",), -1, "start must be >= 0"),
    (("start",), 1.5, "start must be a whole number"),
    (("start",), 2**41, "start must be <= "),
    (("period_s",), 0, "period_s must be >= 1"),
    (("period_s",), "3600", "period_s must be a whole number"),
    (("periods",), 0, "periods must be >= 1"),
    (("periods",), 2**21, "periods must be <= "),
    (("periods",), True, "periods must be a whole number"),
    (("sample_size",), 0, "sample_size must be >= 1"),
    (("sample_size",), 6, "sample_size must be <= 5"),
    (("assigned",), 1, "assigned must be true or false"),
    (("assigned",), None, "assigned must be true or false"),
    (("groups",), 3, "groups must be a power of two"),
    (("groups",), 2048, "groups must be <= 1024"),
    (("groups",), 0, "groups must be >= 1"),
    (("key",), "00", "key must be 32 bytes"),
    (("key",), "0" * 63, "key must be hexadecimal"),
    (("key",), "C8" * 32, "key must be hexadecimal"),
    (("key",), 7, "key must be hexadecimal"),
    (("attributes",), [], "attributes must be 1 to 256"),
    (("attributes",), {}, "attributes must be a list"),
    (("attributes",), [BASE["attributes"][0]] * 257, "attributes must be a list of at most 256"),
    (("attributes",), [BASE["attributes"][0]] * 2, "attributes must have distinct names"),
    (("attributes", 0), 7, r"attributes\[0\] must be an object with a name"),
    (("attributes", 0, "name"), "", r"attributes\[0\]: name must be printable"),
    (("attributes", 0, "name"), "a\x00", r"attributes\[0\]: name must be printable"),
    (("attributes", 0, "bounds"), [1.0, 0.0], r"attributes\[0\]: bounds must satisfy lower < upper"),
    (("attributes", 0, "bounds"), [0.0], r"attributes\[0\]: bounds must be a pair"),
    (("attributes", 0, "bounds"), [0.0, math.inf], r"attributes\[0\]: bounds\[1\] must be finite"),
    (("attributes", 0, "bounds"), {"a": 1, "b": 2}, r"attributes\[0\]: bounds\[0\] must be a number"),
    (("attributes", 0, "more"), 1, r"attributes\[0\]: field 'more' is not known"),
    (("attributes", 0, "mechanism"), ..., r"attributes\[0\]: field mechanism is missing"),
    (("attributes", 0, "mechanism"), [], "mechanism of speed must be an object"),
    (("attributes", 0, "mechanism", "kind"), "KRR", "mechanism of speed: kind must be one of OneBit"),
    (("attributes", 0, "mechanism", "kind"), "Laplace", "mechanism of speed: kind must be one of"),
    (("attributes", 0, "mechanism", "kind"), ["PM"], "mechanism of speed: kind must be one of"),
    (("attributes", 0, "mechanism", "more"), 1, "mechanism of speed: fields must be kind, epsilon, rho"),
    (("attributes", 0, "mechanism", "epsilon"), ..., "mechanism of speed: fields must be"),
    (("attributes", 0, "mechanism", "epsilon"), 0.0, "mechanism of speed: epsilon must be > 0"),
    (("attributes", 0, "mechanism", "rho"), 0.0, "mechanism of speed: rho must be >= 1e-07 and <= 1"),
    (("attributes", 0, "mechanism", "rho"), 1.5, "mechanism of speed: rho must be >= 1e-07 and <= 1"),
    (("attributes", 0, "mechanism", "dither_levels"), 3, "dither_levels must be a power of two"),
    (("attributes", 0, "mechanism", "dither_levels"), 2**17, "dither_levels must be <= 65536"),
    (("attributes", 1, "values"), 1, r"attributes\[1\]: categories must be >= 2"),
    (("attributes", 1, "values"), ["a", "a"], r"attributes\[1\]: categories must be distinct"),
    (("attributes", 1, "values"), ["a", 1.5], r"attributes\[1\]: categories\[1\] must be text"),
    (("attributes", 1, "values"), "ab", r"attributes\[1\]: categories must be a whole number or a sequence"),
    (("attributes", 1, "fallback"), "ship", r"attributes\[1\]: fallback must be one of"),
    (("attributes", 1, "fallback"), [], r"attributes\[1\]: fallback must be one of"),
    (("attributes", 1, "fallback"), None, "sorted fields"),
    (("attributes", 2, "mechanism", "levels"), 100, "mechanism of age: levels must be odd"),
    (("attributes", 2, "mechanism", "levels"), 1, "mechanism of age: levels must be >= 3"),
    (("attributes", 2, "mechanism", "levels"), None, "sorted fields"),
    (("attributes", 3, "mechanism", "buckets"), 1, "mechanism of zone: buckets must be >= 2"),
    (("attributes", 4, "mechanism", "y"), ..., "mechanism of load: y must hold the outputs"),
    (("attributes", 4, "mechanism", "y"), [], "mechanism of load: y must be a vector"),
    (("attributes", 4, "mechanism", "y"), [[1.0], [2.0, 3.0]], "mechanism of load: y must be finite"),
    (("attributes", 4, "mechanism", "y"), [-2.5, -1.0, 0.0, 1.0, 2.6], "y must be antisymmetric"),
    (("attributes", 4, "mechanism", "y"), [2.5, 1.0, 0.0, -1.0, -2.5], "y must be finite and increasing"),
    (("attributes", 4, "mechanism", "y"), ["-1.0", "1.0", "2.0"], "mechanism of load: y must be antisymm"),
    (("attributes", 4, "mechanism", "y"), [-5e-324, 5e-324], "mechanism of load: y must be finite, with"),
    (("attributes", 4, "mechanism", "y"), [-1e308, 1e308, 1.0], "mechanism of load: y must be finite, with"),
    (("attributes", 4, "mechanism", "y"), [-1e-13, 1e-13, 5e-13], "mechanism of load: y must be antisymm"),
    (("attributes", 4, "mechanism", "window"), 5, "mechanism of load: window must be <= 4"),
    (("attributes", 4, "mechanism", "window"), ..., "window must be given together with y"),
]


@pytest.mark.parametrize(("path", "value", "rule"), RULES)
def test_a_broken_field_is_named(path, value, rule):
    with pytest.raises((ParameterError, ParameterTypeError), match=rule) as told:
        Survey.parse(changed(path, value))
    assert "\n" not in str(told.value)


def test_the_unchanged_survey_is_taken():
    """What the test above changes is right before."""
    assert Survey.parse(text(BASE)).text == text(BASE)


@pytest.mark.parametrize(
    "given",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"1",
        b'"survey"',
        b"{" * 100_000,
        b"[" * 1_000_000,
        b'{"a":' * 50_000,
        b"9" * 5000,
        b"\xff\xfe",
        "é".encode(),
        b"\x00",
        bytes(LONGEST_TEXT + 1),
        text(BASE) + b"\n",
        b" " + text(BASE),
        text(BASE).replace(b'"format":1', b'"format":1,"format":1'),
        json.dumps(BASE).encode(),
        json.dumps(BASE, sort_keys=False, separators=(",", ":")).encode() + b" ",
        text(BASE).decode(),
        None,
        7,
    ],
    ids=lambda given: repr(given)[:30],
)
def test_what_is_no_survey_is_refused(given):
    with pytest.raises(REFUSED):
        Survey.parse(given)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=10**300, max_value=10**320)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["OLH", "PM", "-1e999", "0" * 64, "\ud800"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=6,
)


def paths(given, here=()):
    yield here
    inside = given.items() if isinstance(given, dict) else enumerate(given) if isinstance(given, list) else ()
    for step, one in inside:
        yield from paths(one, (*here, step))


ALL = [path for path in paths(BASE) if path]


@settings(max_examples=250, deadline=None)
@given(st.sampled_from(ALL), JSON)
@example(("attributes", 1, "fallback"), "\ud800")
@example(("attributes", 1, "values"), ["\ud800", "b"])
@example(("attributes", 0, "bounds"), [-1.7e308, 1.7e308])
def test_any_value_anywhere_is_taken_or_refused_in_words(path, value):
    with contextlib.suppress(*REFUSED):
        assert Survey.parse(changed(path, value)).text == changed(path, value)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60) | st.lists(st.integers(0, 255), min_size=1, max_size=3))
def test_any_bytes_are_refused_in_words(given):
    if isinstance(given, list):  # a few bytes of a good text changed
        other = bytearray(text(BASE))
        for place, byte in enumerate(given):
            other[(byte * 37 + place * 101) % len(other)] = byte
        given = bytes(other)
    with contextlib.suppress(*REFUSED):
        assert Survey.parse(given).text == given


# Guarantees


def test_mechanisms_that_spend_too_much_together_are_refused():
    each = math.nextafter(2.0, 3.0)
    one, other = Duchi(epsilon=2.0), Duchi(epsilon=each)
    a, b = Number("a"), Number("b")
    assert fleet.survey((a, one), (b, one), epsilon=4.0).units == 4 * 10**12
    with pytest.raises(GuaranteeError, match="may spend more than its epsilon 4 together"):
        fleet.survey((a, one), (b, other), epsilon=4.0)
    assert fleet.survey((a, one), (b, one), epsilon=2.0, sample_size=1).sample_size == 1
    with pytest.raises(GuaranteeError, match="together"):  # the dearest counts, though it may not be drawn
        fleet.survey((a, one), (b, other), epsilon=2.0, sample_size=1)


def test_planted_epsilon_doubled_in_one_mechanism_is_refused():
    with pytest.raises(GuaranteeError, match="together"):
        Survey.parse(changed(("attributes", 0, "mechanism", "epsilon"), 4.0))
    fields = copy.deepcopy(BASE)
    fields["epsilon"] = 6.0  # honest about it: taken
    fields["attributes"][0]["mechanism"]["epsilon"] = 4.0
    assert Survey.parse(text(fields)).epsilon == 6.0


def test_a_window_keeps_its_epsilon_whatever_its_table():
    """The table has no levels of its own: a device makes them from epsilon, window and outputs, exactly."""
    for y in ([-1.0, 1.0], [-9.0, -1.0, 1.0, 9.0], [-1e-90, 0.0, 1e-90], [-1e90, 0.0, 1e90]):
        given = {"kind": "Window", "epsilon": 1.0, "window": 1, "y": y}
        window = instruments.made(Number("load"), given)
        for x in (-1.0, 0.3, 1.0):
            law = window.exact_probabilities(x)
            assert sum(law) == 1
            assert max(law) <= math.e * min(law) * (1 + 1e-15)


def test_planted_a_window_that_gives_a_level_too_much_is_refused(monkeypatch):
    from reticent.mechanisms.numeric import window

    real = window.exp_below
    monkeypatch.setattr(window, "exp_below", lambda epsilon: real(epsilon) * 2)
    with pytest.raises(GuaranteeError, match="window: weights"):
        fleet.single("Window")


def test_instruments_must_be_of_their_attributes():
    number, category = Number("a", (0.0, 1.0)), Category("b", ["x", "y"], "y")
    for attribute, made in (
        (number, Duchi(epsilon=1.0)),
        (number, KRR(epsilon=1.0, categories=2)),
        (category, Duchi(epsilon=1.0)),
        (category, KRR(epsilon=1.0, categories=2)),
        (category, KRR(epsilon=1.0, categories=["y", "x"], fallback="y")),
        (category, KRR(epsilon=1.0, categories=["x", "y"])),
    ):
        with pytest.raises(ParameterError, match=f"the instrument of {attribute.name} must have its"):
            fleet.survey((attribute, made))
    with pytest.raises(ParameterError, match="the instrument of a must have its"):
        fleet.survey((Number("a"), Laplace(epsilon=1.0)))  # has no finite alphabet


def test_a_survey_that_devices_would_refuse_is_not_made():
    many = Category("many", [f"{'x' * 200}-{i}" for i in range(6000)])
    with pytest.raises(ParameterError, match=f"must be at most {LONGEST_TEXT} bytes"):
        fleet.survey((many, "OLH"))
    brackets = Category("brackets", [f"[{i}]" for i in range(5000)])
    survey = fleet.survey((brackets, "OLH"))
    assert Survey.parse(survey.text).id == survey.id


def test_oue_of_many_categories_is_refused():
    with pytest.raises(ParameterError, match="mechanism of big: OUE must have at most 1024 categories"):
        fleet.survey((Category("big", 1025), "OUE"))


def test_periods():
    survey = fleet.mixed(periods=3)
    assert [survey.period_at(fleet.START + s) for s in (-0.5, 0, 3599.9, 3600, 10800)] == [-1, 0, 0, 1, 3]
    for period in (-1, 3, 10**30):
        with pytest.raises(ParameterError, match="period must be"):
            survey.checked_period(period)


def test_a_designed_survey_is_taken_as_it_is():
    asked = [Number("speed", (0.0, 130.0)), Category("kind", ["car", "bus"])]
    fields = {"epsilon": 2.0, "purpose": "traffic", "start": 0, "period_s": 60, "periods": 1}
    survey = designed("s", asked, **fields, sample_size=1, mechanisms={"speed": "Window"})
    assert Survey.parse(survey.text).text == survey.text
    assert survey.guarantee.epsilon == 2.0
    assert designed("s", asked, **fields).key != survey.key
    with pytest.raises(ParameterError, match="mechanisms must be of the attributes, got 'colour'"):
        designed("s", asked, **fields, mechanisms={"colour": "KRR"})
    with pytest.raises(ParameterError, match="mechanism of kind: kind must be one of KRR"):
        designed("s", asked, **fields, mechanisms={"kind": "Window"})
