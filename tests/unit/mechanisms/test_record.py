import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from reticent.errors import ParameterError, ParameterTypeError
from reticent.mechanisms.categorical import KRR, Subset
from reticent.mechanisms.numeric import OneBit, Window, formulas
from reticent.mechanisms.record import Category, Number, Record, RecordReports
from reticent.privacy import LocalDP
from reticent.randomness import SimulationStream

ATTRIBUTES = [
    Number("age", (0, 100)),
    Number("change"),
    Category("city", ["Rome", "Oslo", "Lima"], fallback="Oslo"),
    Category("job", 40),
    Category("shop", 2000),
]


def table(n, seed=1):
    rng = np.random.default_rng(seed)
    return {
        "age": rng.normal(30.0, 10.0, n).clip(0, 100),
        "change": rng.uniform(-0.9, 1.0, n),
        "city": rng.choice(["Rome", "Oslo", "Lima"], n, p=[0.6, 0.3, 0.1]),
        "job": rng.integers(0, 40, n),
        "shop": rng.integers(0, 2000, n) // 2,
    }


def truth(columns):
    shares = {"city": [np.mean(columns["city"] == city) for city in ("Rome", "Oslo", "Lima")]}
    shares["job"] = np.bincount(columns["job"], minlength=40) / len(columns["job"])
    shares["shop"] = np.bincount(columns["shop"], minlength=2000) / len(columns["shop"])
    return {name: columns[name].mean() for name in ("age", "change")}, shares


def test_mechanisms_by_attribute():
    record = Record(ATTRIBUTES, 1.0)
    assert record.sample_size == 1
    assert record.rate == 0.2
    kinds = [type(mechanism) for mechanism in record.mechanisms.values()]
    assert kinds == [OneBit, OneBit, KRR, Subset, Subset]
    assert record.mechanisms["age"].rho == 0.2
    assert all(mechanism.epsilon == record.epsilon_each for mechanism in record.mechanisms.values())


def test_window_where_most_attributes_are_sampled():
    record = Record([Number("a"), Number("b", (0, 10))], 4.0)
    assert record.sample_size == 2
    assert {type(mechanism) for mechanism in record.mechanisms.values()} == {Window}
    variances = record.variances
    assert variances["b"] == pytest.approx(25 * variances["a"])
    half = Record([Number("a"), Number("b")], 4.0, 1)
    assert isinstance(half.mechanisms["a"], Window)  # 1.25 against 1.32 for OneBit with rho = 1/2
    assert half.variances["a"] < formulas.one_bit_worst(4.0, 0.5)


def test_sample_size():
    numbers = [Number(f"x{i}") for i in range(10)]
    assert Record(numbers, 4.0).sample_size == 2  # mathematics 1.2
    assert Record(numbers, 4.0, "documents").sample_size == 1
    assert Record(numbers, 4.0, 3).sample_size == 3
    assert Record(numbers, 4.0).variances["x0"] == pytest.approx(7.686872083144838, rel=1e-5)


def test_guarantee_and_split():
    record = Record(ATTRIBUTES, 0.7, 3)
    assert record.guarantee == LocalDP(0.7, unit="one record")
    assert Fraction(record.epsilon_each) * 3 <= Fraction(0.7)


@pytest.mark.parametrize("weights", ["design", "realised"])
@pytest.mark.parametrize(("epsilon", "sample_size"), [(1.0, None), (6.0, 3), (6.0, 5)])
def test_estimates_are_unbiased_within_the_stated_error(weights, epsilon, sample_size):
    columns = table(60_000)
    means, shares = truth(columns)
    record = Record(ATTRIBUTES, epsilon, sample_size)
    estimate = record.estimate(record.perturb(columns, SimulationStream(3)), weights)
    for name, mean in means.items():
        # The stated variance is the worst case, so five standard errors are more than five.
        assert abs(estimate.means[name] - mean) < 5 * math.sqrt(record.variances[name] / 60_000)
    for name, share in shares.items():
        mechanism = record.mechanisms[name]
        share = np.asarray(share)
        variance = (mechanism.frequency_variance(share) + share) / record.rate - share * share
        assert (np.abs(estimate.frequencies[name] - share) < 5 * np.sqrt(variance / 60_000)).all()


def test_spread_over_repetitions_matches_and_a_wrong_rate_would_show():
    """The mean age over 200 runs: unbiased within 5 standard errors; d/k off by 10 % is caught."""
    record = Record(ATTRIBUTES[:4], 2.0)
    columns = {name: values for name, values in table(2_000).items() if name != "shop"}
    mean = truth(table(2_000))[0]["age"]
    runs = [
        record.estimate(record.perturb(columns, SimulationStream(9).spawn(i))).means["age"]
        for i in range(200)
    ]
    error = np.std(runs) / math.sqrt(200)
    assert np.std(runs) < math.sqrt(record.variances["age"] / 2_000) * 1.25
    assert abs(np.mean(runs) - mean) < 5 * error
    wrong = 50 + (np.array(runs) - 50) * 1.1  # what forgetting a part of d/k would give
    assert abs(wrong.mean() - mean) > 5 * error


def test_realised_weights_have_less_spread_far_from_the_middle():
    record = Record([Number("x"), Number("y")], 4.0, 1)
    columns = {"x": np.ones(500), "y": np.ones(500)}
    runs = {"design": [], "realised": []}
    for i in range(200):
        reports = record.perturb(columns, SimulationStream(2).spawn(i))
        for weights, values in runs.items():
            values.append(record.estimate(reports, weights).means["x"])
    assert np.std(runs["realised"]) < 0.8 * np.std(runs["design"])
    assert abs(np.mean(runs["realised"]) - 1.0) < 5 * np.std(runs["realised"]) / math.sqrt(200)


def test_sampled_attributes_do_not_depend_on_the_data():
    record = Record(ATTRIBUTES, 3.0, 2)
    first, second = (record.perturb(table(1_000, seed), SimulationStream(4)) for seed in (1, 2))
    assert np.array_equal(first.sampled, second.sampled)
    assert first.sampled.shape == (1_000, 2)
    assert first.people == 1_000
    assert sum(len(reports) for reports in first.reports.values()) == 2_000


def test_any_content_is_reported():
    record = Record(ATTRIBUTES, 3.0, 5)
    strange = {
        "age": [None, "x", float("nan"), 1e400],
        "change": [10**400, object(), [1], -math.inf],
        "city": ["Atlantis", None, 3, ["Rome"]],
        "job": [40, -1, 1.5, None],
        "shop": ["a", None, 2000, 3],
    }
    plain = {
        "age": [50, 50, 50, 100],
        "change": [1, 0, 0, -1],
        "city": ["Oslo"] * 4,
        "job": [0, 0, 0, 0],
        "shop": [0, 0, 0, 3],
    }
    reports = [record.perturb(columns, SimulationStream(6)) for columns in (strange, plain)]
    for name in strange:
        assert np.array_equal(reports[0].reports[name], reports[1].reports[name])


def test_one_person_and_attributes_that_nobody_reported():
    record = Record(ATTRIBUTES, 1.0)
    reports = record.perturb({"age": 37, "change": 0.1, "city": "Rome", "job": 3, "shop": 7})
    assert reports.people == 1
    design, realised = record.estimate(reports), record.estimate(reports, "realised")
    assert sum(design.counts.values()) == 1
    (reported,) = [name for name, count in design.counts.items() if count]
    for name in ("age", "change"):
        assert math.isfinite(design.means[name])
        assert math.isnan(realised.means[name]) == (name != reported)
    assert all(np.isfinite(shares).all() for shares in design.frequencies.values())


def test_describe():
    text = Record(ATTRIBUTES, 1.0).describe()
    assert text.startswith(
        "Each person reports 1 of 5 attributes under epsilon 1 each, 1 in all. Protects one record."
    )
    assert "age: number in [0, 100], OneBit, 1 bit; standard error" in text
    assert "city: 3 categories, KRR, 2 bits; standard error" in text


@pytest.mark.parametrize(
    ("attributes", "error", "message"),
    [
        ([], ParameterError, "attributes must hold at least one attribute, got none"),
        ("ab", ParameterTypeError, "attributes must be a sequence of Number and Category, got str"),
        ([3], ParameterTypeError, r"attributes\[0\] must be a Number or a Category, got int"),
        ([Number("a"), Number("a")], ParameterError, "attributes must have distinct names, got 'a' twice"),
    ],
)
def test_bad_attributes(attributes, error, message):
    with pytest.raises(error, match=message):
        Record(attributes, 1.0)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: Number(3), ParameterTypeError, "name must be text, got 3"),
        (lambda: Number(""), ParameterError, "name must be printable and not empty, got ''"),
        (lambda: Number("a", (1, 0)), ParameterError, "bounds must satisfy lower < upper"),
        (lambda: Category("a", 1), ParameterError, "categories must be >= 2, got 1"),
        (lambda: Category("a", ["x", "x"]), ParameterError, "categories must be distinct, got 'x' twice"),
        (lambda: Category("a", 3, fallback=3), ParameterError, "fallback must be <= 2, got 3"),
        (lambda: Category("a", 2.5), ParameterTypeError, "categories must be a whole number, got 2.5"),
        (lambda: Record([Number("a")], 0), ParameterError, "epsilon must be > 0, got 0"),
        (lambda: Record([Number("a")], 1.0, 2), ParameterError, "sample_size must be <= 1, got 2"),
        (
            lambda: Record([Number("a")], 1.0, "x"),
            ParameterError,
            "sample_size must be a number or 'documents'",
        ),
        (lambda: Record([Number("a")], 1.0, 1.5), ParameterTypeError, "sample_size must be a whole number"),
    ],
)
def test_bad_parameters(call, error, message):
    with pytest.raises(error, match=message):
        call()


SMALL = Record([Number("a"), Category("b", 3)], 1.0, 2)


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        ([1, 2], ParameterTypeError, "table must map attribute names to values, got list"),
        ({"a": [1]}, ParameterError, "table must hold every attribute, 'b' is missing"),
        (
            {"a": [1], "b": [1], "c": [1]},
            ParameterError,
            "table must hold the declared attributes alone, got 'c'",
        ),
        ({"a": [1, 2], "b": [1]}, ParameterError, r"table\['b'\] must hold 2 values like 'a', got 1"),
        (
            {"a": np.array([[1, 2]]), "b": [1]},
            ParameterError,
            r"table\['a'\] must hold one value per person, got shape",
        ),
        (
            {"a": [], "b": []},
            ParameterError,
            r"table\['a'\] must hold one value per person, got shape \(0,\)",
        ),
    ],
)
def test_bad_tables(columns, error, message):
    with pytest.raises(error, match=message):
        SMALL.perturb(columns)


def test_bad_reports():
    good = SMALL.perturb({"a": [0, 1], "b": [0, 1]}, SimulationStream(1))
    cases = {
        r"sampled must have shape \(n, 2\), got \(2, 1\)": replace(good, sampled=good.sampled[:, :1]),
        "sampled must hold attribute numbers >= 0 and < 2": replace(good, sampled=good.sampled + 1),
        "sampled must be increasing in each row": replace(good, sampled=good.sampled[:, ::-1]),
        r"reports\['b'\] must hold 2 reports as sampled": replace(good, reports={"a": good.reports["a"]}),
        r"reports\['a'\] must hold symbols >= 0 and < 2048": replace(
            good, reports={**good.reports, "a": np.array([0, 2048])}
        ),
        "reports must be >= 0 and < 3": RecordReports(good.sampled, {**good.reports, "b": np.array([0, 3])}),
    }
    for message, reports in cases.items():
        with pytest.raises(ParameterError, match=message):
            SMALL.estimate(reports)
    with pytest.raises(ParameterError, match='weights must be "design" or "realised", got \'x\''):
        SMALL.estimate(good, "x")
