"""A mechanism made for a guess: exact ratio, no bias, less variance as guessed, a limit elsewhere."""

import json
import math

import numpy as np
import pytest

from reticent.audit.exact import check_channel
from reticent.collect import instruments
from reticent.errors import GuaranteeError, ParameterError, ParameterTypeError
from reticent.mechanisms.attributes import Number
from reticent.mechanisms.base import exp_below
from reticent.mechanisms.numeric import HMTP, Duchi, Optimal, PMSub, Prior, Tailored
from reticent.mechanisms.numeric import tailored as module
from reticent.mechanisms.numeric.priors import as_prior
from reticent.mechanisms.numeric.tailored import PLACES, _alias
from reticent.mechanisms.numeric.tailored_solver import _Program, lower_bound, spread_knots
from reticent.mechanisms.sampling import VARIANCES
from reticent.randomness import SimulationStream

pytest.importorskip("scipy", reason="scipy is not installed")

NEAR_0, NEAR_THIRD, SMALL = Prior.normal(0.0, 0.25), Prior.normal(1 / 3, 0.25), as_prior("small gradients")
PRINTED = [  # mathematics 1.4: what a linear program at 33 even knots has
    (NEAR_0, 1.0, 3.550), (NEAR_0, 2.0, 0.6131), (NEAR_0, 4.0, 0.0648),
    (NEAR_THIRD, 1.0, 3.642), (NEAR_THIRD, 2.0, 0.6405), (NEAR_THIRD, 4.0, 0.0678),
    (SMALL, 1.0, 3.307), (SMALL, 2.0, 0.5123), (SMALL, 4.0, 0.0465),
]  # fmt: skip


@pytest.mark.parametrize(("prior", "epsilon", "printed"), PRINTED)
def test_expected_variances_are_those_of_the_linear_program_or_less(prior, epsilon, printed):
    mechanism = Tailored(epsilon=epsilon, prior=prior)
    assert mechanism.size <= 64
    assert mechanism.gap <= 0.005
    assert mechanism.expected_variance() <= printed * 1.0005  # printed to three or four digits
    coarse = np.linspace(-1, 1, 201)
    best = min(
        prior.on(coarse) @ [variance(epsilon, float(x)) for x in coarse] for variance in VARIANCES.values()
    )
    assert mechanism.expected_variance() < 0.985 * best


def random_prior(rng):
    """Anything: a few bumps, a histogram with holes, one narrow peak."""
    kind = rng.integers(3)
    if kind == 0:
        points, density = np.linspace(-1, 1, 400), np.zeros(400)
        for _ in range(rng.integers(1, 4)):
            density += rng.random() * np.exp(
                -0.5 * ((points - rng.uniform(-1, 1)) / rng.uniform(0.02, 0.6)) ** 2
            )
        return Prior.histogram(density + 1e-9)
    if kind == 1:
        return Prior.histogram(rng.random(rng.integers(2, 30)) * (rng.random() < 0.9) + 1e-6)
    return Prior.laplace(rng.uniform(-1, 1), rng.uniform(0.005, 0.5))


@pytest.mark.parametrize(
    ("priors", "epsilons"),
    [(2, [0.3, 1.3, 4.0]), pytest.param(100, np.geomspace(0.1, 8.0, 10), marks=pytest.mark.slow)],
)
def test_certified_unbiased_and_exact_for_any_guess(priors, epsilons):
    rng = np.random.default_rng(25)
    x = np.linspace(-1, 1, 101)
    for _ in range(priors):
        prior = random_prior(rng)
        for epsilon in map(float, epsilons):
            mechanism = Tailored(epsilon=epsilon, prior=prior)
            assert mechanism.gap <= 0.005, epsilon
            assert mechanism.size <= 64
            bias = mechanism.probabilities(x) @ mechanism.alphabet - x
            assert np.abs(bias).max() <= 1e-12 * max(1.0, np.abs(mechanism.alphabet).max())
            rows = [mechanism.exact_probabilities(one) for one in (-1.0, -0.31, 0.0, 0.77, 1.0)]
            bound = exp_below(epsilon)
            assert all(max(column) <= bound * min(column) for column in zip(*rows, strict=True))
            assert all(sum(row) == 1 for row in rows)
            exact = mechanism.exact_probabilities(0.123)
            mean = float(sum(p * y for p, y in zip(map(float, exact), mechanism.alphabet, strict=True)))
            assert mean == pytest.approx(0.123, abs=1e-12 * max(1.0, np.abs(mechanism.alphabet).max()))


@pytest.mark.parametrize(
    "cases",
    [
        [(NEAR_0, 1.0)],
        pytest.param(
            [
                (prior, epsilon)
                for prior in (NEAR_0, NEAR_THIRD, SMALL, as_prior("uniform"), Prior.laplace(0.5, 0.02))
                for epsilon in (0.5, 1.0, 2.0, 4.0)
            ],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_knots_four_times_as_many_gain_at_most_two_percent(cases):
    """The bound of finer knots holds for every channel there. Planted: 9 knots are too few at epsilon 4."""
    for prior, epsilon in cases:
        bound = lower_bound(epsilon, prior, inputs=129)
        excess = Tailored(epsilon=epsilon, prior=prior).expected_variance() / bound - 1.0
        print(f"mean {prior.mean:+.2f}, epsilon {epsilon:g}: at most {100 * excess:.2f} % above 129 knots")
        assert excess <= 0.02
    assert Tailored(epsilon=4.0, prior=SMALL, inputs=9).expected_variance() > 1.02 * lower_bound(
        4.0, SMALL, inputs=33
    )


@pytest.mark.parametrize(
    ("epsilon", "regret"),
    [(0.5, 0.1), (1.0, 0.1), (1.0, 0.5), (2.0, 0.1), pytest.param(4.0, 0.1, marks=pytest.mark.slow)],
)
def test_no_input_is_above_the_regret(epsilon, regret):
    mechanism = Tailored(epsilon=epsilon, prior=SMALL, regret=regret)
    most = (1 + regret) * Optimal(epsilon=epsilon).worst_case_variance
    x = np.linspace(-1, 1, 4001)
    assert mechanism.variance(x).max() <= mechanism.worst_case_variance * (1 + 1e-12)
    assert mechanism.worst_case_variance <= most
    assert mechanism.gap <= 0.005
    free = Tailored(epsilon=epsilon, prior=SMALL)
    assert free.expected_variance() <= mechanism.expected_variance() * 1.003
    if epsilon > 0.5 and regret < 0.2:
        assert free.worst_case_variance > most  # the limit is not there for nothing


def test_the_bound_is_below_every_channel():
    """Another solver, another road: the documents' mechanisms and ours at the same knots."""
    program = _Program(1.0, NEAR_0, spread_knots(NEAR_0, 17))
    program.solve(0.002)
    least = (program.bound - program.base) * program.scale**2
    for kind in (Duchi, PMSub, HMTP, Optimal):
        mechanism = kind(epsilon=1.0)
        squares = mechanism.variance(program.knots) + program.knots**2
        assert least <= program.w @ squares - NEAR_0.second_moment


# The device


def text(**changes):
    mechanism = Tailored(epsilon=1.0, prior=SMALL, inputs=9)
    return json.loads(json.dumps(instruments.described(mechanism))) | changes


def test_a_device_makes_the_same_mechanism_from_its_text():
    mechanism = Tailored(epsilon=2.0, prior=NEAR_THIRD, bounds=(0.0, 50.0))
    sent = json.loads(json.dumps(instruments.described(mechanism)))
    assert set(sent) == {"kind", "epsilon", "y", "columns"}
    assert len(json.dumps(sent)) < 5000
    again = instruments.made(Number("x", (0.0, 50.0)), sent)
    values = np.linspace(-1, 60, 1000)
    assert np.array_equal(
        again.sample(values, SimulationStream(1)), mechanism.sample(values, SimulationStream(1))
    )
    with pytest.raises(ParameterError, match="prior must be given: this table was solved elsewhere"):
        again.expected_variance()
    assert again.expected_variance(NEAR_THIRD) == mechanism.expected_variance()
    assert math.isnan(again.gap)


def heavier(columns):
    """A sender who wants more likely outputs than there are places."""
    return [[output, weight + weight // 1000, pattern] for output, weight, pattern in columns]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda sent: {"columns": heavier(sent["columns"])}, "leave each knot a few places"),
        (lambda sent: {"epsilon": 1.001}, "leave each knot a few places"),
        (lambda sent: {"columns": sent["columns"][:-1]}, "leave each knot a few|use every output"),
        (lambda sent: {"columns": [[0, 5, "1"], [1, 5, "2"]], "y": [0.0, 1.0]}, "leave each knot a few"),
        (lambda sent: {"columns": [[*one[:2], "0" + one[2]] for one in sent["columns"]]}, "patterns"),
        (lambda sent: {"columns": [[*one[:2], "zz"] for one in sent["columns"]]}, "must be a pattern"),
        (lambda sent: {"columns": [[one[0], 0, one[2]] for one in sent["columns"]]}, "must be >= 1"),
        (lambda sent: {"columns": [[99, *one[1:]] for one in sent["columns"]]}, "must be <="),
        (lambda sent: {"columns": [[0, 1]] * 3}, "must be an output, a weight and a pattern"),
        (lambda sent: {"columns": 7}, "columns must be a list"),
        (lambda sent: {"y": sent["y"][::-1]}, "y must be increasing"),
        (lambda sent: {"y": [float("nan"), *sent["y"][1:]]}, "y must be finite"),
        (lambda sent: {"y": [0.0] * 65}, "y must be a vector of 2 to 64"),
        (lambda sent: {"y": None}, "y and columns must be given together|y must"),
    ],
)
def test_a_device_refuses_what_is_no_table(change, message):
    sent = text()
    with pytest.raises((ParameterError, GuaranteeError), match=message):
        instruments.made(Number("x"), sent | change(sent))


def test_a_device_solves_nothing():
    with pytest.raises(ParameterError, match="y must hold the outputs: a device solves nothing"):
        instruments.made(Number("x"), {"kind": "Tailored", "epsilon": 1.0})


def test_any_table_that_is_taken_keeps_its_ratio():
    """Columns changed at random: whatever the sender does, e^epsilon holds or the table is refused."""
    rng, taken, sent = np.random.default_rng(3), 0, text()
    for size in np.geomspace(1e-12, 1e-1, 60):
        columns = [
            [output, int(weight * (1 - size * rng.random())), pattern]
            for output, weight, pattern in sent["columns"]
        ]
        epsilon, y = 1.0 - size * rng.random() / 10, np.sort(np.array(sent["y"]) + size * rng.random())
        try:
            made = Tailored(epsilon=epsilon, y=y, columns=columns)
        except GuaranteeError:
            continue
        taken += 1
        assert check_channel(made).passed
    assert taken > 10


# Planted bugs: what the check of a mechanism and the auditor catch


class WrongFloor(Tailored):
    """Planted: the likely places are worked out from a weight that is one part in 10^9 larger."""

    def _table(self):
        table = super()._table()
        output = int(table.max(axis=0).argmax())
        low = int(table[:, output].argmin())
        table[low, output] -= table[low, output] // 10**9
        table[low, (output + 1) % self._y.size] += PLACES - table[low].sum()
        return table


class OneCountMore(Tailored):
    """Planted: an output at the limit has one place more, taken from another one."""

    def _table(self):
        table = super()._table()
        ratios = table.max(axis=0) / table.min(axis=0)
        output = int(ratios.argmax())
        knot = int(table[:, output].argmax())
        c = exp_below(self.epsilon)
        more = math.floor(c * (int(table[:, output].min()) - module.SLACK)) - module.SLACK + 1
        other = int(np.where(np.arange(table.shape[1]) == output, 0, table[knot]).argmax())
        table[knot, other] -= more - table[knot, output]
        table[knot, output] = more
        return table


@pytest.mark.parametrize("kind", [WrongFloor, OneCountMore])
def test_planted_tables_are_refused(kind):
    sent = text()
    with pytest.raises(GuaranteeError, match="differ by more than e"):
        kind(epsilon=1.0, y=sent["y"], columns=sent["columns"])
    Tailored(epsilon=1.0, y=sent["y"], columns=sent["columns"])


def test_an_exact_law_is_what_the_kernel_draws():
    """To the rounding of its draws; that these are the draws is tested by the family's chi-square."""
    mechanism = Tailored(epsilon=1.0, prior=SMALL, inputs=5)
    for x in (-1.0, -0.613, 0.0, 1e-9, 0.25, 1.0):
        exact = mechanism.exact_probabilities(x)
        assert sum(exact) == 1
        assert [float(p) for p in exact] == pytest.approx(mechanism.probabilities(x), rel=1e-11)


def test_aliases_hold_every_place():
    rng = np.random.default_rng(5)
    for outputs in (2, 5, 63, 64):
        row = np.diff(np.append(0, np.sort(rng.integers(1, PLACES, outputs - 1))), append=PLACES).tolist()
        own, other = _alias(row)
        held = [0] * 64
        for slot in range(64):
            held[slot] += own[slot]
            held[other[slot]] += PLACES // 64 - own[slot]
        assert held == row + [0] * (64 - outputs)


# Guesses


@pytest.mark.parametrize(
    ("guess", "error", "message"),
    [
        ("normal", ParameterError, "prior must be 'uniform', 'small gradients', or weights, got 'normal'"),
        (3.0, ParameterTypeError, "prior must be a Prior, a name or weights, got float"),
        ([], ParameterError, "prior must be a vector of 1 to 65536 weights"),
        ([0.0, -1.0], ParameterError, "one of them positive at least"),
        ([1.0, math.nan], ParameterError, "prior must hold finite weights"),
    ],
)
def test_bad_guesses(guess, error, message):
    with pytest.raises(error, match=message):
        Tailored(epsilon=1.0, prior=guess)


def test_bad_parameters():
    with pytest.raises(ParameterError, match="regret must be >= 0, got -1"):
        Tailored(epsilon=1.0, regret=-1.0)
    with pytest.raises(ParameterError, match="regret must be larger at this epsilon"):
        Tailored(epsilon=6.0, regret=0.0, inputs=9)
    with pytest.raises(ParameterError, match="inputs must be >= 5, got 3"):
        Tailored(epsilon=1.0, inputs=3)
    with pytest.raises(ParameterError, match="y and columns must be given together"):
        Tailored(epsilon=1.0, y=[-1.0, 1.0])


def test_moments_of_guesses():
    assert as_prior("uniform").second_moment == pytest.approx(1 / 3, rel=1e-6)
    assert (SMALL.mean, NEAR_THIRD.mean) == (pytest.approx(0.0, abs=1e-12), pytest.approx(1 / 3, abs=0.01))
    assert Prior.histogram([0, 0, 5]).mean == pytest.approx(2 / 3, abs=1e-3)
    knots = spread_knots(SMALL, 33)
    assert SMALL.on(knots).sum() == pytest.approx(1.0)
    assert SMALL.on(knots) @ knots == pytest.approx(SMALL.mean, abs=1e-12)
    assert np.diff(spread_knots(Prior.laplace(0.3, 0.001), 41)).min() > 1 / 450
