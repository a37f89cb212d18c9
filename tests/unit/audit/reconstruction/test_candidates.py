"""The best attacker among candidates: exact, never above its bound, and a bound that can be broken."""

import itertools

import numpy as np
import pytest

from reticent.audit.leakage import success_under_epsilon, success_under_exchange, success_under_mu
from reticent.audit.reconstruction import (
    best_success_of_reports,
    expected_record,
    posterior_of_gaussian,
    posterior_of_reports,
    updates,
)
from reticent.errors import ParameterError
from reticent.federated import payload
from reticent.federated.client import Client
from reticent.federated.tasks import designed, signed
from reticent.fleet.enrolment import Enrolment, device_key
from reticent.randomness import SimulationStream

from ...federated import people

N, D = 5, 6
GRADIENTS = np.random.default_rng(3).uniform(-1.0, 1.0, (N, D))
WHO = people.enrolment(1)
ME = payload.client_number(WHO)


@pytest.mark.parametrize("kind", people.NUMERIC)
@pytest.mark.parametrize("size", [1, 2])
def test_success_is_that_of_all_reports_gone_through(kind, size):
    """A second way: every report by itself, for every candidate."""
    task = people.task(kind, D, size, epsilon=2.0)
    asked = task.asked(ME, 0)
    laws = [[task.mechanism.probabilities(one[place]) for place in asked[0]] for one in GRADIENTS]
    if kind == "OneBit":  # given the public dither levels, each with the same chance, a bit is left
        levels = task.dither(ME, 0, asked)[0]
        laws = [
            [16 * law[2 * level : 2 * level + 2] for law, level in zip(each, levels, strict=True)]
            for each in laws
        ]
    best = 0.0
    for symbols in itertools.product(range(len(laws[0][0])), repeat=size):
        best += max(np.prod([law[place][symbol] for place, symbol in enumerate(symbols)]) / N for law in laws)
    assert best_success_of_reports(task, ME, 0, GRADIENTS) == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("kind", people.NUMERIC)
def test_no_attacker_is_above_the_bound(kind, epsilon):
    task = people.task(kind, D, 1, epsilon=epsilon)
    extremes = np.where(np.eye(N, D, dtype=bool), 1.0, -1.0)
    for number in range(6):
        for gradients in (GRADIENTS, extremes):
            found = best_success_of_reports(task, ME, number, gradients)
            assert 1.0 / N - 1e-12 <= found <= success_under_exchange(1.0 / N, epsilon) * (1.0 + 1e-9)
            assert found <= success_under_epsilon(1.0 / N, epsilon) * (1.0 + 1e-9)


def test_planted_a_mechanism_of_more_epsilon_is_above_the_bound():
    loud = people.task("Duchi", D, 1, epsilon=4.0)
    two = np.array([np.full(D, -1.0), np.full(D, 1.0)])
    assert best_success_of_reports(loud, ME, 0, two) > success_under_exchange(0.5, 1.0)


def test_bytes_of_real_clients_give_the_exact_posterior(tmp_path):
    """A real client: its ledger, its payload; the attacker is right as often as worked out."""
    epsilon, rounds = 3.0, 100
    task = designed(
        "attack", D, epsilon=epsilon, purpose="x", rounds=rounds, group=1, rate=1.0, participations=rounds
    )
    truth = np.random.default_rng(6).integers(0, N, rounds)
    right, expected = 0, 0.0
    lifetime = epsilon * rounds + 1.0
    with Client(
        tmp_path / "ledger", WHO, people.SIGNER, lifetime=lifetime, rng=SimulationStream(5)
    ) as client:
        held = client.take(signed(task, people.SIGNING))
        sent = [client.report(held, number, GRADIENTS[who]) for number, who in enumerate(truth)]
    for number, who in enumerate(truth):
        posterior = posterior_of_reports(task, number, [sent[number]], people.MASTER, GRADIENTS)
        assert posterior.sum() == pytest.approx(1.0)
        assert posterior.max() <= success_under_exchange(1.0 / N, epsilon) * (1.0 + 1e-9)
        right += int(posterior[0].argmax() == who)
        expected += best_success_of_reports(task, ME, number, GRADIENTS)
    # beyond 5 standard deviations of 100 coins once in 1.7e6
    assert abs(right - expected) < 5.0 * np.sqrt(rounds) / 2.0
    assert expected > 1.2 * rounds / N  # and it does learn something


def test_gaussian_success_stays_below_its_bound():
    candidates = np.stack([updates.clipped(4.0 * one, 1.0).update for one in GRADIENTS])
    mu, trials, right = 1.0, 500, 0
    for seed in range(trials):
        sent = updates.gaussian(4.0 * GRADIENTS[seed % N], 1.0, mu, SimulationStream(seed))
        right += int(posterior_of_gaussian(sent.update, candidates, sent.noise).argmax() == seed % N)
    assert right / trials < success_under_mu(1.0 / N, mu)
    naked = sum(  # planted: noise a tenth of what is said
        int(posterior_of_gaussian(candidates[k % N] + noise, candidates, 0.2).argmax() == k % N)
        for k, noise in enumerate(0.2 * np.random.default_rng(1).normal(size=(300, D)))
    )
    assert naked / 300 > success_under_mu(1.0 / N, mu)


def test_the_expected_record_is_the_mean_under_the_posterior():
    records = np.arange(12.0).reshape(3, 2, 2)
    assert expected_record([0.5, 0.5, 0.0], records).tolist() == records[:2].mean(axis=0).tolist()


@pytest.mark.parametrize(
    ("call", "part"),
    [
        (lambda task: best_success_of_reports(task, ME, 0, GRADIENTS[:, :2]), "6 numbers each, got (5, 2)"),
        (
            lambda task: best_success_of_reports(task, ME, 0, GRADIENTS, np.ones(N)),
            "prior must be 5 positive",
        ),
        (lambda task: posterior_of_reports(task, 0, [b"x"], people.MASTER, GRADIENTS), "payload 0 is not"),
        (lambda task: posterior_of_gaussian(np.ones(3), GRADIENTS, 1.0), "update must be as many"),
    ],
)
def test_refusals_are_one_line(call, part):
    with pytest.raises(ParameterError) as raised:
        call(people.task("Duchi", D, 1))
    assert part in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_enrolment_of_another_key_is_refused():
    task = people.task("Duchi", D, 1)
    stranger = Enrolment(WHO.id, device_key(bytes(32), WHO.id))
    sent = people.report(task, stranger, 0, GRADIENTS[0], SimulationStream(1))
    with pytest.raises(ParameterError, match="payload 0 is not a report of this round: tag"):
        posterior_of_reports(task, 0, [sent], people.MASTER, GRADIENTS)
