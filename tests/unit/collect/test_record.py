"""What was learnt from devices is in the ledger first, once for each part, and under names of its own."""

import pytest

from reticent.collect.study import of_survey
from reticent.errors import BudgetExceeded, LedgerError, MixedGuarantees
from reticent.fleet import record as recording
from reticent.fleet.record import Record, Study
from reticent.ledger import MemoryLedger, SqlLedger, Terms, Unit
from reticent.privacy import Neighbours
from reticent.query.declarations.datasets import _NAME as OF_DATASETS

from . import fleet

CAMPAIGN = Study("campaign", bytes(8), "one phone", Unit.EPSILON_PER_KM, Neighbours.METRIC, 10**12, 3)
TRAINING = Study("training", bytes(8), "one client", Unit.EPSILON, Neighbours.ANY_TWO_VALUES, 10**12, 3)


@pytest.fixture
def ledger():
    return MemoryLedger()


@pytest.fixture
def survey():
    return fleet.single("OneBit", periods=3)


@pytest.fixture(params=["survey", "campaign", "training"])
def study(request, survey):
    return {"survey": of_survey(survey), "campaign": CAMPAIGN, "training": TRAINING}[request.param]


def learn(ledger, study, parts, units=None):
    Record(ledger).learn(study, parts, units)  # as another process would


def test_each_part_is_charged_once(ledger, study):
    name = study.terms.name
    learn(ledger, study, {0: None})
    assert ledger.balance(name).spent == study.units
    assert len(ledger.pending(name)) == 1
    for _ in range(2):
        learn(ledger, study, {0: 120, 1: None})
        assert ledger.balance(name).spent == 2 * study.units
    assert [one.key for one in ledger.pending(name)] == [f"{study.part} 1"]
    assert ledger.reading(name, f"{study.part} 0").sums == (120 * study.units,)


def test_there_are_as_many_parts_as_it_says(ledger, study):
    learn(ledger, study, dict.fromkeys(range(3)))
    with pytest.raises(BudgetExceeded):
        learn(ledger, study, {3: None})


def test_the_count_that_was_entered_stands(ledger, study):
    learn(ledger, study, {0: 120})
    learn(ledger, study, {0: 999})
    assert ledger.reading(study.terms.name, f"{study.part} 0").sums == (120 * study.units,)


def test_a_part_that_cost_less_is_charged_less(ledger):
    learn(ledger, TRAINING, {0: 7}, units=5)
    assert ledger.balance(TRAINING.terms.name).spent == 5


def test_nothing_learnt_opens_nothing(ledger, study):
    learn(ledger, study, {})
    assert ledger.accounts() == []


def entries_of_two_looks(ledger, study):
    record, asked = Record(ledger), []
    request = ledger.request
    ledger.request = lambda *given: asked.append(given) or request(*given)
    for parts in ({0: None}, {0: None}, {0: 120}, {0: 120}):
        record.learn(study, parts)
    return len(asked)


def test_a_process_asks_the_ledger_once_for_each_state(study):
    """An open part, then the same with its count."""
    assert entries_of_two_looks(MemoryLedger(), study) == 2


def test_planted_a_record_that_remembers_too_little_is_caught(study):
    """By asking each time; and one that remembers a part without its state would ask once."""

    class Forgetful(set):
        def add(self, entry):
            pass

    ledger = MemoryLedger()
    record = Record(ledger)
    record._entered = Forgetful()
    for _ in range(2):
        record.learn(study, {0: 120})
    assert ledger.balance(study.terms.name).spent == study.units, "it costs time, never budget"


def test_a_ledger_that_cannot_be_written_lets_nothing_be_shown(study):
    class Full(MemoryLedger):
        def _request(self, *given):
            raise LedgerError("disk full")

    record = Record(Full())
    for _ in range(2):  # not remembered as entered
        with pytest.raises(LedgerError, match="disk full"):
            record.learn(study, {0: None})


# Names


def test_the_three_are_kept_apart(ledger, survey):
    other = fleet.single("OneBit", periods=3, epsilon=2.0)
    studies = [of_survey(survey), of_survey(other), CAMPAIGN, TRAINING]
    for one in studies:
        learn(ledger, one, {0: None})
    assert len({one.terms.name for one in studies}) == 4 == len(ledger.accounts())


def test_no_data_set_can_have_the_name(study):
    """It failed: survey-<id> is a legal name. Planted: the old name."""
    assert not OF_DATASETS.fullmatch(study.terms.name)
    assert OF_DATASETS.fullmatch(study.terms.name.replace(":", "-"))


def a_data_set_in_the_way(ledger, survey):
    name = of_survey(survey).old_name
    ledger.open(Terms(name, Unit.MU2, Neighbours.REPLACE_ONE, "one row", 10**12))


def test_a_data_set_of_the_old_name_blocks_no_survey(ledger, survey):
    """It failed: AccountConflict, and the survey could never be shown."""
    a_data_set_in_the_way(ledger, survey)
    learn(ledger, of_survey(survey), {0: 9})
    assert ledger.balance(of_survey(survey).old_name).spent == 0
    assert ledger.balance(of_survey(survey).terms.name).spent == survey.units


def test_an_account_of_an_earlier_release_goes_on(tmp_path, survey):
    """With its own terms, under its old name: what it spent counts. A data set of that name is not taken."""
    old = Terms(
        f"survey-{survey.id.hex()}",
        Unit.EPSILON,
        Neighbours.ANY_TWO_VALUES,
        f"one device that answers survey {survey.name}",
        survey.units * survey.periods,
    )
    with SqlLedger(tmp_path / "ledger") as ledger:
        ledger.open(old)  # as 0.1.0 did
        ledger.request(old.name, "period 0", recording.Amount(survey.units, old.unit, old.neighbours))
        record = Record(ledger)
        assert record.account(of_survey(survey)) == old.name
        record.learn(of_survey(survey), {0: 120, 1: None})
        assert ledger.balance(old.name).spent == 2 * survey.units
        assert [one.terms.name for one in ledger.accounts()] == [old.name]


def test_planted_an_adoption_that_does_not_look_at_the_terms_is_caught(ledger, survey, monkeypatch):
    monkeypatch.setattr(recording, "replace", lambda terms, name: ledger.balance(name).terms)
    a_data_set_in_the_way(ledger, survey)
    with pytest.raises(MixedGuarantees):  # charged to the data set, in another unit
        learn(ledger, of_survey(survey), {0: 9})
