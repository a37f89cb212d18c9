"""Surveys that learn: waves by lots, follow-ups, once in a period whatever the text, honest means."""

import math
from dataclasses import replace

import numpy as np
import pytest

from reticent.collect import shaping, survey_file
from reticent.collect.collector import Collector
from reticent.collect.design import designed
from reticent.collect.device import Device
from reticent.collect.estimates import estimates
from reticent.collect.explanation import explain, gains
from reticent.collect.signing import signed, verified
from reticent.collect.survey import Survey
from reticent.collect.tally import Tally
from reticent.collect.waves import FIRST_WAVE, LAST_PERIOD, Follows, Waves
from reticent.collect.wire import Outcome
from reticent.errors import GuaranteeError, LedgerError, ParameterError
from reticent.estimation.shapes import Shape, learnt, shape_of
from reticent.fleet.lots import Lots
from reticent.fleet.record import Record
from reticent.ledger import SqlLedger
from reticent.ledger.device.marks import Marks
from reticent.mechanisms.numeric import Optimal, Tailored
from reticent.mechanisms.record import Number
from reticent.randomness import SimulationStream

from . import fleet

SPEED = Number("speed", (0.0, 130.0))
EPSILON, PERIOD = 2.0, 3


def learning(source=FIRST_WAVE, share=0.25, **changes):
    """A survey of speeds that learns."""
    own = Optimal(epsilon=EPSILON, bounds=SPEED.bounds)
    waves = Waves(("speed",), source, share, 0.5)
    return fleet.survey((SPEED, own), epsilon=EPSILON, name="learning", **{"waves": waves} | changes)


SURVEY = learning()


def follow_of(survey=SURVEY, period=PERIOD, shape=(-0.25, 0.18), **changes):
    """A follow-up as an operator makes it."""
    made = shaping.tailored(survey, 1, Shape(*shape), SPEED.bounds)
    follows = Follows(survey.id, period, (("speed", *shape),), 1000)
    return replace(survey, **{"instruments": (made,), "follows": follows} | changes)


def file_of(survey):
    return signed(survey, fleet.SIGNING)


def numbers(first, survey=SURVEY, period=PERIOD):
    """Devices of this fleet that the lots put into a wave."""
    for number in range(200):
        ids = fleet.reporter(fleet.enrolment(number))
        if bool(survey.is_first(ids, period)[0]) == first:
            yield number


@pytest.fixture
def device(tmp_path):
    """Open a device of the fleet; closed after the test."""
    opened = []

    def open_one(number, **changes):
        options = {"lifetime": 100.0, "marks": Marks(tmp_path / "marks"), "rng": SimulationStream(number)}
        found = Device(
            tmp_path / f"ledger-{number}", fleet.enrolment(number), fleet.SIGNER, **options | changes
        )
        opened.append(found)
        return found

    yield open_one
    for one in opened:
        one.close()


# Texts


@pytest.mark.parametrize(
    "text", [SURVEY, learning(LAST_PERIOD, 0.0), follow_of()], ids=["first", "last", "follow"]
)
def test_a_text_says_all(text):
    again = Survey.parse(text.text)
    assert (again.text, again.waves, again.follows) == (text.text, text.waves, text.follows)
    assert verified(file_of(text), fleet.SIGNER).id == text.id


def test_a_survey_that_does_not_learn_says_nothing_of_it():
    assert not {b"waves", b"follows"} & set(fleet.single("PM").text.split(b'"'))


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"waves": Waves(("weight",), FIRST_WAVE, 0.1)}, "waves.learns must be names of attributes"),
        ({"waves": None, "follows": Follows(b"12345678", 0, (), 1)}, "waves is missing"),
        ({"follows": Follows(b"12345678", 24, (), 1)}, "follows.period must be"),
        (
            {"waves": Waves(("speed",), LAST_PERIOD, 0.0), "follows": Follows(b"12345678", 0, (), 1)},
            "must be >= 1",
        ),
        ({"follows": Follows(b"12345678", 3, (), 1)}, "follows.shapes must be one for each"),
        (
            {"follows": Follows(b"12345678", 3, (("kind", 0.0, 0.4),), 1)},
            "follows.shapes must be one for each",
        ),
        ({"follows": Follows(b"12345678", 3, (("speed", 0.0, 0.4),) * 2, 1)}, "follows.shapes must be one"),
    ],
)
def test_a_broken_rule_is_named(changes, rule):
    with pytest.raises(ParameterError, match=rule):
        learning(**{"waves": SURVEY.waves} | changes)


@pytest.mark.parametrize("fields", [(FIRST_WAVE, 0.0), (FIRST_WAVE, 1.0), (LAST_PERIOD, -0.1), ("luck", 0.1)])
def test_waves_have_rules(fields):
    with pytest.raises(ParameterError, match=r"waves\.(share|source)"):
        Waves(("speed",), *fields)


# Who is in which wave


def test_lots_give_each_wave_its_share():
    """False-alarm rate 6e-7: five standard deviations."""
    ids = np.arange(40_000, dtype=np.uint64)
    lots = Lots(fleet.KEY)
    first = lots.first_wave(ids, 3, 0.1)
    assert abs(first.mean() - 0.1) < 5.0 * math.sqrt(0.09 / ids.size)
    other = lots.first_wave(ids, 4, 0.1)
    assert abs((first & other).mean() - 0.01) < 5.0 * math.sqrt(0.0099 / ids.size), "anew in each period"
    assert not lots.first_wave(ids, 3, 0.0).any()


def test_all_are_first_in_the_first_period_of_last_period():
    ids, survey = np.arange(100, dtype=np.uint64), learning(LAST_PERIOD, 0.0)
    assert survey.is_first(ids, 0).all()
    assert not survey.is_first(ids, 1).any()
    assert survey.is_first(ids[:2], np.array([0, 1])).tolist() == [True, False]


# Devices


def test_a_device_answers_the_text_of_its_wave_once(device):
    one, two = device(next(numbers(True))), device(next(numbers(False)))
    for each in (one, two):
        each.take(file_of(SURVEY))
    first = one.report(SURVEY, {"speed": 40.0}, period=PERIOD)
    assert first[1:9] == SURVEY.id
    assert two.awaits(SURVEY, period=PERIOD)
    assert not one.awaits(SURVEY, period=PERIOD)
    with pytest.raises(ParameterError, match="must have its follow-up"):
        two.report(SURVEY, {"speed": 40.0}, period=PERIOD)
    assert two.spent == 0.0
    follow = follow_of()
    for each in (one, two):
        each.take(file_of(follow))
    assert one.report(SURVEY, {"speed": 90.0}, period=PERIOD) == first, (
        "it is in the first wave whatever comes"
    )
    second = two.report(SURVEY, {"speed": 40.0}, period=PERIOD)
    assert second[1:9] == follow.id
    assert two.report(follow, {"speed": 99.0}, period=PERIOD) == second
    assert (one.spent, two.spent) == (EPSILON, EPSILON)


def test_planted_a_second_follow_up_gives_no_second_report(device):
    """Under another text of the same period: refused while running, and the same report after a restart."""
    number = next(numbers(False))
    with device(number) as two:
        two.take(file_of(SURVEY))
        follow = two.take(file_of(follow_of()))
        report = two.report(SURVEY, {"speed": 40.0}, period=PERIOD)
        with pytest.raises(GuaranteeError, match="another follow-up"):
            two.take(file_of(follow_of(shape=(0.5, 0.12))))
    again = device(number)
    again.take(file_of(SURVEY))
    assert again.report(SURVEY, {"speed": 1.0}, period=PERIOD) == report, "without any follow-up"
    again.take(file_of(follow_of(shape=(0.5, 0.12))))
    assert again.report(SURVEY, {"speed": 90.0}, period=PERIOD) == report
    assert again.spent == EPSILON
    assert report[1:9] == follow.id


def test_planted_a_ledger_by_text_would_pay_and_report_twice(device, monkeypatch):
    """If follow-ups were remembered under their own ids, the test above would see a second report."""
    number = next(numbers(False))
    with device(number) as two:
        two.take(file_of(SURVEY))
        two.take(file_of(follow_of()))
        report = two.report(SURVEY, {"speed": 40.0}, period=PERIOD)
    monkeypatch.setattr(Survey, "series", property(lambda self: self.id.hex()))
    again = device(number)
    again.take(file_of(SURVEY))
    again.take(file_of(follow_of(shape=(0.5, 0.12))))
    again._following[SURVEY.series, PERIOD] = follow_of(shape=(0.5, 0.12))
    assert again.report(SURVEY, {"speed": 40.0}, period=PERIOD) != report
    assert again.spent == 2.0 * EPSILON


@pytest.mark.parametrize(
    "changes",
    [{"epsilon": 4.0}, {"periods": 25}, {"key": bytes(32)}, {"waves": Waves(("speed",), FIRST_WAVE, 0.9)}],
    ids=["epsilon", "periods", "key", "share"],
)
def test_a_follow_up_changes_mechanisms_alone(device, changes):
    one = device(next(numbers(False)))
    one.take(file_of(SURVEY))
    with pytest.raises(GuaranteeError, match="but for its mechanisms"):
        one.take(file_of(follow_of(**changes)))


def test_a_follow_up_needs_its_survey_and_its_signer(device):
    one = device(0)
    with pytest.raises(ParameterError, match="must be taken first"):
        one.take(file_of(follow_of()))
    one.take(file_of(SURVEY))
    forged = file_of(follow_of()).replace(b'"signature":"', b'"signature":"0', 1)
    with pytest.raises((GuaranteeError, ParameterError)):
        one.take(forged)


def test_planted_a_wrong_floor_in_the_table_is_refused():
    """A floor that is too high leaves a row too many places; one too low leaves nothing to take the rest."""
    follow = follow_of()
    columns = follow.instruments[0].columns
    output, weight, pattern = max(columns, key=lambda one: one[1])
    told = f'[{output},{weight},"{pattern}"]'.encode()
    assert follow.text.count(told) == 1
    Survey.parse(follow.text)
    for planted in (f'[{output},{weight + 1_000_000},"{pattern}"]', f'[{output},{weight // 10},"{pattern}"]'):
        with pytest.raises(GuaranteeError):
            Survey.parse(follow.text.replace(told, planted.encode()))


def test_planted_more_epsilon_in_a_follow_up_is_refused():
    louder = Tailored(epsilon=2.5, prior=Shape(0.0, 0.27).prior, regret=0.5, bounds=SPEED.bounds)
    with pytest.raises(GuaranteeError, match="more than its epsilon"):
        follow_of(instruments=(louder,))


# The collector


def test_planted_a_wave_that_the_device_chose_is_refused(collecting, device):
    follow = follow_of()
    collector = collecting(SURVEY, follow)
    stream = SimulationStream(3)
    first, second = fleet.enrolment(next(numbers(True))), fleet.enrolment(next(numbers(False)))
    sent = [
        fleet.report(SURVEY, first, PERIOD, stream=stream),
        fleet.report(follow, second, PERIOD, stream=stream),
        fleet.report(follow, first, PERIOD, stream=stream),  # chosen
        fleet.report(SURVEY, second, PERIOD, stream=stream),  # chosen
        fleet.report(follow, second, PERIOD + 1, stream=stream),
    ]
    told = collector.receive(sent)
    assert told == [Outcome.COUNTED, Outcome.COUNTED, Outcome.WAVE, Outcome.WAVE, Outcome.PERIOD]
    assert collector.periods(SURVEY) == {PERIOD: 2}
    assert [int(one.reports[0].sum()) for one in collector.tallies(SURVEY, [PERIOD])] == [1, 1]
    assert [one.id for one in collector.surveys()] == [SURVEY.id]


def test_a_reporter_is_counted_once_whatever_the_text(collecting):
    """Another nonce under the same follow-up; and what was counted survives a restart of the collector."""
    follow = follow_of()
    collector = collecting(SURVEY, follow)
    who, stream = fleet.enrolment(next(numbers(False))), SimulationStream(3)
    report = fleet.report(follow, who, PERIOD, stream=stream)
    other = fleet.report(follow, who, PERIOD, stream=stream, nonce=b"12345678")
    assert collector.receive([report, report, other]) == [Outcome.COUNTED, Outcome.DUPLICATE, Outcome.SECOND]
    assert collector.counted(SURVEY, who.id).periods == (PERIOD,)


def test_a_period_has_one_follow_up(collecting):
    collector = collecting(SURVEY, follow_of(), follow_of())
    with pytest.raises(ParameterError, match="has a follow-up already"):
        collector.collect(file_of(follow_of(shape=(0.5, 0.12))), fleet.SIGNER)
    with pytest.raises(ParameterError, match="not collected here"):
        collector.collect(file_of(follow_of(learning(share=0.5))), fleet.SIGNER)
    odd = Follows(SURVEY.id, PERIOD + 1, (("speed", 0.3, 0.0),), 1)  # signed, and no page could show it
    with pytest.raises(ParameterError, match="a shape must have a mean in steps"):
        collector.collect(file_of(follow_of(follows=odd)), fleet.SIGNER)
    assert list(collector.follow_ups(SURVEY)) == [PERIOD]


def test_a_collection_is_opened_again_with_its_follow_ups(tmp_path):
    for turn in range(2):
        with Collector(tmp_path / "c.sqlite", fleet.MASTER) as collector:
            if not turn:
                collector.collect(file_of(SURVEY), fleet.SIGNER)
                collector.collect(file_of(follow_of()), fleet.SIGNER)
            assert list(collector.follow_ups(SURVEY)) == [PERIOD]


# Shaping: recorded first


class Counted:
    """A collector that notes when it was looked at."""

    def __init__(self, tallies, events):
        self.tallies_, self.events = tallies, events

    def periods(self, survey):
        return {PERIOD: 1}

    def is_closed(self, survey, period):
        return False

    def tallies(self, survey, periods):
        self.events.append(("looked", tuple(periods)))
        return self.tallies_


class Noting(Record):
    """A record that notes when something was entered."""

    def __init__(self, ledger, events):
        super().__init__(ledger)
        self.events = events

    def learn(self, study, parts, units=None):
        super().learn(study, parts, units)
        self.events.append(("entered", tuple(parts)))


def counted(survey, values, stream):
    tally = Tally.empty(survey)
    drawn = survey.instruments[0].sample(values, stream)
    tally.add(0, np.zeros(values.size, dtype=np.int64), drawn)
    return tally


def speeds(count, seed=0):
    return np.clip(np.random.default_rng(seed).normal(45.0, 12.0, count), 0.0, 130.0)


@pytest.mark.parametrize(("source", "shaping_period"), [(FIRST_WAVE, PERIOD), (LAST_PERIOD, PERIOD - 1)])
def test_what_shapes_is_recorded_before_it_is_looked_at(tmp_path, source, shaping_period):
    """Planted: a `follow_up` that looks first has the two events the other way round."""
    survey, events = learning(source), []
    collector = Counted([counted(survey, speeds(4000), SimulationStream(1))], events)
    with SqlLedger(tmp_path / "ledger.sqlite") as ledger:
        follow = shaping.follow_up(survey, PERIOD, collector, Noting(ledger, events))
        assert ledger.balance(f"survey:{survey.id.hex()}").spent == survey.units
    assert events == [("entered", (shaping_period,)), ("looked", (shaping_period,))]
    assert follow.follows.reports == 4000
    (_, mean, deviation) = follow.follows.shapes[0]
    assert abs(mean - (45.0 - 65.0) / 65.0) <= 0.125
    assert deviation in (0.12, 0.18, 0.27)
    follow.check_follows(survey)


def test_planted_what_cannot_be_recorded_shapes_nothing():
    class Full(Noting):
        def learn(self, study, parts, units=None):
            raise LedgerError("the disk is full")

    events = []
    with pytest.raises(LedgerError):
        shaping.follow_up(SURVEY, PERIOD, Counted([], events), Full(None, events))
    assert events == []


def test_nobody_shapes_nothing():
    with pytest.raises(ParameterError, match="nobody reported yet"):
        shaping.shaped(SURVEY, PERIOD, [Tally.empty(SURVEY)])
    with pytest.raises(ParameterError, match="must be one that learns"):
        shaping.shaped(fleet.single("PM"), 0, [])
    with pytest.raises(ParameterError, match="> 0"):
        shaping.sources(learning(LAST_PERIOD), 0)


def test_a_mixed_record_learns_with_the_best_k():
    """Two numbers and a category: the follow-up keeps epsilon whatever a report holds, and is estimated."""
    epsilon, attributes = 2.0, [SPEED, Number("load"), fleet.KIND]
    waves = Waves(("speed", "load"), FIRST_WAVE, 0.1)
    survey = designed(
        "mixed", attributes, epsilon=epsilon, purpose="p", start=0, period_s=9, periods=9, waves=waves
    )
    stream, tallies = SimulationStream(2), [Tally.empty(survey)]
    values = (speeds(900), np.full(900, 0.25), np.array(["bus"] * 900, dtype=object))

    def count(tally):
        for place, (given, instrument) in enumerate(zip(values, tally.survey.instruments, strict=True)):
            draw = getattr(instrument, "sample", None) or instrument.perturb
            tally.add(place, np.zeros(900, dtype=np.int64), draw(given, stream))

    count(tallies[0])
    follow = shaping.shaped(survey, 0, tallies)
    follow.check_follows(survey)
    assert [one[0] for one in follow.follows.shapes] == ["speed", "load"]
    assert abs(follow.follows.shapes[1][1] - 0.25) <= 0.125
    assert follow.sample_size * max(one.epsilon for one in follow.instruments) <= epsilon
    tallies.append(Tally.empty(follow))
    count(tallies[1])
    speed, load, kind = estimates(*tallies)
    assert (speed.reports, load.reports, kind.reports) == (1800, 1800, 1800)
    assert load.mean.lower <= 0.25 <= load.mean.upper
    assert kind.frequencies.lower[1] <= 1.0 <= kind.frequencies.upper[1] + 1e-12
    assert speed.mean.lower <= speeds(900).mean() <= speed.mean.upper


def test_a_liar_wastes_accuracy_within_the_regret():
    """All of the first wave lies as loudly as it can."""
    tally = Tally.empty(SURVEY)
    top = np.full(1000, SURVEY.instruments[0].size - 1)
    tally.add(0, np.zeros(1000, dtype=np.int64), top)
    made = shaping.shaped(SURVEY, PERIOD, [tally]).instruments[0]
    assert made.worst_case_variance <= 1.5 * Optimal(epsilon=EPSILON, bounds=SPEED.bounds).worst_case_variance
    assert made.epsilon == EPSILON


def test_few_reports_leave_a_shape_where_it_started():
    channel = Optimal(epsilon=0.5)
    counts = np.bincount(channel.sample(np.full(20, 0.9), SimulationStream(1)), minlength=channel.size)
    assert shape_of(learnt([(channel, counts)])).deviation == 0.6
    assert shape_of(learnt([])) == Shape(0.0, 0.6)


def test_tiny_epsilons_keep_the_best_for_the_worst_case():
    survey = fleet.survey((SPEED, Optimal(epsilon=0.2, bounds=SPEED.bounds)), epsilon=0.2, waves=SURVEY.waves)
    made = shaping.tailored(survey, 1, Shape(0.0, 0.27), SPEED.bounds)
    assert type(made).__name__ == "OneBit"


# Estimates


def joint(seed, weights=None):
    """A mean of both waves from few reports: as `estimates` combines them, or with given weights."""
    stream = SimulationStream(seed)
    first = counted(SURVEY, speeds(30, 7), stream)
    follow = FOLLOW
    second = counted(follow, speeds(60, 8), stream)
    if weights is None:
        return estimates(first, second)[0].mean.value
    return weights(first, second)


FOLLOW = follow_of(shape=(-0.25, 0.18))


def by_values(first, second):
    """Planted: inverse variances estimated from the reports of each wave."""
    means, precisions = [], []
    for one in (first, second):
        channel, counts = one.survey.instruments[0], one.counts[0].sum(axis=0)
        reports = np.repeat(channel.alphabet, counts)
        means.append(reports.mean())
        precisions.append(reports.size / reports.var(ddof=1))
    return float(np.average(means, weights=precisions))


def test_the_mean_of_waves_is_unbiased():
    """False-alarm rate 6e-7: five standard errors over 300 draws of the same 90 values."""
    truth = np.concatenate([speeds(30, 7), speeds(60, 8)]).mean()
    found = np.array([joint(seed) for seed in range(300)])
    assert abs(found.mean() - truth) < 5.0 * found.std(ddof=1) / math.sqrt(found.size)


def test_planted_weights_that_look_at_the_values_are_biased():
    """Values near a bound: their reports are skewed, and a wave that came out small looks precise."""
    values = np.full(24, 2.0)
    follow, found = follow_of(shape=(0.5, 0.12)), []
    for seed in range(1500):
        stream = SimulationStream(seed)
        found.append(by_values(counted(SURVEY, values, stream), counted(follow, values, stream)))
    found = np.array(found)
    assert abs(found.mean() - 2.0) > 5.0 * found.std(ddof=1) / math.sqrt(found.size)


def test_intervals_of_waves_hold():
    """95 % intervals that are proved: of 120, fewer than 102 hold with a chance below 1e-4 at 95 %."""
    truth = np.concatenate([speeds(300, 7), speeds(2700, 8)]).mean()
    held = 0
    for seed in range(120):
        stream = SimulationStream(seed)
        tallies = counted(SURVEY, speeds(300, 7), stream), counted(FOLLOW, speeds(2700, 8), stream)
        (found,) = estimates(*tallies)
        held += found.mean.lower <= truth <= found.mean.upper
    assert held >= 102
    assert found.reports == 3000


def test_periods_that_learn_from_the_last_one_combine():
    """Three periods, each shaped by the one before, of other sizes and other values.

    False-alarm rate 1e-6: the interval is proved at that level. Planted: periods that count the same each.
    """
    survey, stream = learning(LAST_PERIOD), SimulationStream(5)
    values = [speeds(size, size) + shift for size, shift in ((300, -15.0), (900, 5.0), (1800, 25.0))]
    tallies = [counted(survey, values[0], stream)]
    for period in (1, 2):
        follow = shaping.shaped(survey, period, [tallies[-1]])
        follow.check_follows(survey)
        tallies.append(counted(follow, values[period], stream))
    assert len({one.survey.id for one in tallies}) == 3
    (found,) = estimates(*tallies, confidence=1.0 - 1e-6)
    assert found.reports == 3000
    assert found.mean.lower <= np.concatenate(values).mean() <= found.mean.upper
    planted = np.mean([estimates(one)[0].mean.value for one in tallies])
    assert not found.mean.lower <= planted <= found.mean.upper


def test_one_text_is_estimated_as_ever():
    tally = counted(SURVEY, speeds(500), SimulationStream(1))
    assert estimates(tally)[0].mean == estimates(tally, Tally.empty(FOLLOW))[0].mean


def test_the_expected_gain_is_told():
    with_it, without = shaping.expected_errors(SURVEY, FOLLOW, 0, 10_000)
    assert with_it < 0.95 * without
    (sentence,) = gains(SURVEY, FOLLOW)
    assert f"{with_it:.3g}, and {without:.3g} without" in sentence
    assert any("once in a period and pays once" in one for one in explain(SURVEY))


# What people write

YAML = """
name: traffic
version: 1
purpose: To plan roads.
epsilon: 2
start: 2026-11-16
period: 1 day
periods: 30
{more}
attributes:
  speed: {{low: 0, high: 130, tailor: {tailor}}}
"""


def test_a_file_says_how_it_learns():
    survey = survey_file.parse(YAML.format(more="wave: 0.2\nregret: 0.3", tailor="first wave"))
    assert survey.waves == Waves(("speed",), FIRST_WAVE, 0.2, 0.3)
    assert survey_file.parse(YAML.format(more="", tailor="last period")).waves.share == 0.0


@pytest.mark.parametrize("guess", ["uniform", "[1, 4, 2, 1]"])
def test_a_guess_needs_no_wave(guess):
    survey = survey_file.parse(YAML.format(more="regret: 0.3", tailor=guess))
    assert (survey.waves, type(survey.instruments[0])) == (None, Tailored)


@pytest.mark.parametrize(
    ("more", "tailor", "rule"),
    [
        ("wave: 0.2", "uniform", "wave must go with"),
        ("", "first wave, mechanism: PM", "without another mechanism"),
        ("", "luck", "prior must be"),
        ("wave: 2", "first wave", "waves.share"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(more, tailor, rule):
    with pytest.raises(ParameterError, match=rule):
        survey_file.parse(YAML.format(more=more, tailor=tailor))
