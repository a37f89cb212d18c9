"""A survey as its author writes it, and in words."""

import pytest

from reticent.collect import survey_file
from reticent.collect.explanation import explain, standard_error, told
from reticent.errors import ReticentError

TEXT = survey_file.template("2026-11-16", "To know.")


def test_the_template_is_a_survey():
    survey = survey_file.parse(TEXT)
    assert (survey.name, survey.periods, survey.period_s, survey.groups) == ("my-survey", 30, 86_400, 16)
    assert survey.start == 1_794_787_200
    assert survey.assigned
    assert [one.name for one in survey.attributes] == ["speed", "kind"]


def test_a_mechanism_may_be_named():
    survey = survey_file.parse(TEXT.replace("high: 130}", "high: 130, mechanism: PMSub}"))
    assert type(survey.instruments[0]).__name__ == "PMSub"


def test_a_tailored_survey_keeps_its_own_name():
    """It took the name of the last attribute with a guess: `speed` was printed and published."""
    survey = survey_file.parse(TEXT.replace("high: 130}", "high: 130, tailor: [30, 60]}"))
    assert type(survey.instruments[0]).__name__ == "Tailored"
    assert survey.name == "my-survey"
    assert b'"name":"my-survey"' in survey.text.replace(b" ", b"")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("epsilon: 1 ", "epsilon: much ", "epsilon must be a number, got 'much'"),
        ("epsilon: 1 ", "epsilon: 100 ", "epsilon must be"),
        ("epsilon: 1 ", "epsilon: [1] ", "epsilon must be a number"),
        ("period: 1 day", "period: 1 moon", "period must read like"),
        ("start: 2026-11-16", "start: soon", "start must be a day or a time"),
        ("periods: 30", "periods: many", "periods must be a whole number"),
        ("groups: 16", "groups: 3", "groups must be a power of two"),
        ("assigned: true", "assigned: maybe", "assigned must be true or false"),
        ("low: 0, ", "", "attributes.speed: field low is missing"),
        ("low: 0, high: 130", "low: 9, high: 3", "bounds must satisfy"),
        ("[car, bus, bicycle, other]", "[car]", "categories must be >= 2"),
        ("fallback: other", "fallback: train", "fallback must be one of"),
        ("name: my-survey", "name: my survey", "name must be"),
        ("version: 1", "colour: 1", "field 'colour' is not known"),
        ("version: 1\n", "", "field version is missing"),
        ("high: 130}", "high: 130, mechanism: Laplace}", "kind must be one of"),
        ("attributes:", "attributes: 3\nother:", "field 'other' is not known"),
    ],
)
def test_what_breaks_a_rule_is_named(old, new, message):
    assert old in TEXT
    with pytest.raises(ReticentError, match=message):
        survey_file.parse(TEXT.replace(old, new))


def test_what_is_no_yaml_is_refused(tmp_path):
    for content in (b"[", b"- a\nb: c", b"3", b"\xff", b"a" * (1 << 21)):
        path = tmp_path / "s.yaml"
        path.write_bytes(content)
        with pytest.raises(ReticentError, match=r"survey s\.yaml: "):
            survey_file.read(path)


def test_a_survey_is_told_in_words():
    text = "\n".join(explain(survey_file.parse(TEXT)))
    for part in ("30 periods of 1 day from 2026-11-16 00:00 UTC", "73.1 % sure", "spends epsilon 30 in all"):
        assert part in text
    assert "at most 50.0 % sure" in told(1e-4)


def test_errors_fall_with_the_root_of_the_devices():
    survey = survey_file.parse(TEXT)
    for place in range(2):
        few, many = (standard_error(survey, place, n) for n in (1000, 100_000))
        assert few == pytest.approx(10 * many)
