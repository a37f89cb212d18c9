"""Write a sample of every stored, signed and sent text that no other test stores, from fixed inputs.

Stored elsewhere, and compared there byte by byte: surveys, tasks and rounds with their reports and device
ledgers (`tests/unit/fleet/stored`, `tests/unit/collect/data`, `docs/report-vectors.json`), SQL ledgers of
version 1 (`tests/unit/ledger/data`), codebooks (`docs/codebook-vectors.json`). Files in `tests/golden/files`
are as this release and its users wrote them: later releases must read them, so they are never written anew.
"""

from __future__ import annotations

import datetime
import hashlib
import io
import itertools
import json
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from ..unit.collect import fleet
from ..unit.federated.crowd import round_of
from ..unit.location import campaign as places
from ..unit.market import federating, trade
from .file_fields import FILES

ADDRESS = "0x" + "11" * 20
CHANGING = {"identity", "inode", "order_key"}  # values that differ from run to run
OF_THE_MACHINE = {"born", "system"}  # fields of `home.json` that not every file system has


def collect_formats() -> list[str]:
    """Return one line for each field of each sample, in the order in which it is written."""
    lines = []
    for name in sorted(SAMPLES):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(os, "urandom", known_draws()):
            lines += describe_sample(name, SAMPLES[name](Path(folder)))
    return lines


def known_draws() -> Callable[[int], bytes]:
    """Return a stand-in for `os.urandom` that always draws the same."""
    numbers = itertools.count()
    return lambda size: hashlib.shake_256(b"%d" % next(numbers)).digest(size)


def describe_sample(name: str, sample: bytes | str) -> list[str]:
    """Return the fields of a text, and the digest of its bytes unless some differ from run to run."""
    text = sample.decode("latin-1") if isinstance(sample, bytes) else sample
    lines = [*_describe_value("", text)]
    if not any(line.endswith("= ...") for line in lines):
        lines.append(f"bytes {len(text)}, SHA-256 {hashlib.sha256(text.encode('latin-1')).hexdigest()[:32]}")
    return [f"{name} | {line}" for line in lines]


def _describe_value(path: str, value: Any) -> Iterator[str]:
    if isinstance(value, str) and value.startswith(("{", "[")):
        value = json.loads(value)
    name = path.rpartition(".")[2]
    if name in OF_THE_MACHINE:
        return
    if name in CHANGING:
        yield f"{path} = ..."
    elif isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _describe_value(f"{path}.{key}", inner)
    elif isinstance(value, list) and any(isinstance(inner, dict) for inner in value):
        for index, inner in enumerate(value):
            yield from _describe_value(f"{path}[{index}]", inner)
    else:
        text = json.dumps(value)
        is_long = len(text) > 300 or (len(text) > 100 and " " not in text)
        yield f"{path} = {f'{len(text)} characters' if is_long else text}".strip()


# Files


def _write_file(write: Callable[[Path], object], name: str) -> Callable[[Path], bytes]:
    def read_back(folder: Path) -> bytes:
        write(folder)
        return (folder / name).read_bytes()

    return read_back


def _write_campaign(folder: Path) -> bytes:
    from reticent.location.campaign import Campaign, Settings

    from ..unit.operating import operator

    box = {"south": 48.82, "north": 48.88, "west": 2.28, "east": 2.39, "rows": 4, "columns": 5}
    settings = Settings("paris", "to test", **box, beta=0.5, rounds=3, closed=(7, 19))
    Campaign.begin(folder / "campaign", settings, operator(places.MASTER), places.SIGNING).close()
    return (folder / "campaign" / "campaign.json").read_bytes()


def _write_chain_file(folder: Path) -> None:
    from reticent.ledger.ethereum.chain_file import ChainFile

    ChainFile("http://node", 31337, ADDRESS, ADDRESS, 7, 5).write(folder / "chain.json")


def _write_crowd_file(folder: Path) -> None:
    from reticent.federated.crowd.crowd_file import CrowdFile

    CrowdFile("http://node", 31337, ADDRESS, 7, 5).write(folder / "crowd.json")


def _write_home(folder: Path) -> bytes:
    from reticent.query import census, open  # noqa: A004

    open(census.write(folder / "census", rows=20)).close()
    return (folder / "census" / "census.reticent" / "home.json").read_bytes()


def _write_witness_note(folder: Path) -> None:
    from reticent.ledger.witness import opening

    note = opening.Note("http://witness", "ab" * 32, "reticent/ledger", "signer.key", "host/base", "cd" * 32)
    opening._write(folder / "ledger.witness", note)


def _write_commitment(folder: Path) -> bytes:
    from reticent.query.chain.commitment import Commitment

    return Commitment(31337, ADDRESS, ADDRESS, "ab" * 32).write(folder / "census.yaml").read_bytes()


def _write_disclosure_note(folder: Path) -> str:
    from reticent.ledger.device.told import Told

    return Told.noted(None, "a survey", "fleet", "to test", bytes(32), datetime.date(2026, 11, 18)).text


def _write_count_receipt(folder: Path) -> str:
    from reticent.fleet.counted import Counted

    return Counted("survey:00", fleet.enrolment(3).id, (0, 4), 3).to_json()


def _write_crowd_task(folder: Path) -> bytes:
    from reticent.federated.crowd.task_text import PublicTest
    from reticent.store import cid_of

    return replace(round_of.TASK, test=PublicTest(cid_of(b"rows"), 6)).to_json()


def _write_crowd_modes(folder: Path) -> str:
    from ..unit.federated.split import tasks

    return json.dumps({mode.mode: mode.words() for mode in (tasks.NOISED, tasks.DOCUMENTED)})


def _write_crowd_update(folder: Path) -> str:
    from reticent.federated.crowd import updates

    person = round_of.PEOPLE[0]
    update, origin = np.arange(15, dtype=np.int32), round_of.PLACE.origin(0, person.address)
    return updates.seal(round_of.GRID, update, origin, person.key).file.hex()


# Signed texts of the market


def _write_bill(folder: Path) -> bytes:
    from reticent.fleet.signing import signed

    return signed(trade.bill_of()[0], fleet.SIGNING)


def _write_hold(folder: Path) -> bytes:
    from reticent.market.holds import Hold

    return Hold(bytes(8), bytes(16), bytes(8), 1, 10**12, 50, 1_700_000_900).signed(fleet.SIGNING)


def _write_hold_request(folder: Path) -> str:
    from reticent.market.holds import ask

    return ask(fleet.enrolment(1), trade.bill_of()[0], 1, 1_700_000_000.5).hex()


def _write_federation(folder: Path) -> str:
    from reticent.market.federations import acts

    story = federating.three()
    story.do("anna", acts.Vote(federating.public("anna")))
    story.whole_deal(federating.FULL)
    story.bid()
    story.do(story.head_of(), acts.Withdraw())
    story.do("cleo", acts.Leave())
    return json.dumps([json.loads(file) for file in story.files])


# Ledgers


def build_amounts() -> list[Any]:
    """Return an amount of each unit, with each relation between neighbours that the unit may have."""
    from reticent.ledger import Amount, Unit
    from reticent.privacy import Neighbours

    return [
        Amount(1000, Unit.MU2, Neighbours.REPLACE_ONE),
        Amount(1000, Unit.MU2, Neighbours.ADD_REMOVE_ONE),
        Amount(1000, Unit.EPSILON, Neighbours.ANY_TWO_VALUES),
        Amount(1000, Unit.EPSILON_PER_KM, Neighbours.METRIC),
        Amount(1000, Unit.METRIC_DELTA, Neighbours.METRIC),
        Amount(50, Unit.MONEY, Neighbours.NONE),
    ]


def _fill_ledger(place: Path) -> Any:
    """Return a SQL ledger with an account of each kind and an entry of most types."""
    from reticent.ledger import SqlLedger, Terms, audits

    ledger, amounts = SqlLedger(place, key=fleet.SIGNING), build_amounts()
    for number, amount in enumerate(amounts):
        ledger.open(Terms(f"account-{number}", amount.unit, amount.neighbours, "one person", 10**12))
    text = '{"measured":"count"}'
    key = f"count/{hashlib.sha256(text.encode()).hexdigest()}"
    ledger.declare("account-0", key, question=text, grid=3, dimension=2)
    ledger.request("account-0", key, amounts[0], idempotency="once")
    ledger.fulfil(ledger.pending("account-0")[0].number, [1, -2])
    ledger.charge("account-5", "sale", amounts[5], idempotency="once")
    audits.record(ledger, claim="epsilon 1", verdict=audits.Verdict.NOTHING_FOUND, report=audits.mark())
    return ledger


def _write_ledger_export(folder: Path) -> str:
    from reticent.ledger.export import export

    text = io.StringIO()
    with _fill_ledger(folder / "exported.sqlite") as ledger:
        export(ledger, text, openings=True)
    return json.dumps([json.loads(line) for line in text.getvalue().splitlines()])


def dump_ledger(folder: Path) -> str:
    """Return the database of a SQL ledger as SQL."""
    with mock.patch.object(os, "urandom", known_draws()):
        _fill_ledger(folder / "stored.sqlite").close()
    with closing(sqlite3.connect(folder / "stored.sqlite")) as connection:
        return "\n".join(connection.iterdump()) + "\n"


def _write_accounts(folder: Path) -> str:
    """Return the names of the accounts and charges that operators keep in their ledgers."""
    from reticent.collect.study import of_survey
    from reticent.federated.server import study
    from reticent.fleet.people import People
    from reticent.market import escrow
    from reticent.query.declarations import populations

    people, survey = populations.read(FILES / "patients.people").account, of_survey(fleet.mixed())
    note = People(people, "ab" * 16, 1).note(survey.terms.name)
    return json.dumps({
        "people": people,
        "survey": survey.terms.name,
        "earlier survey": survey.old_name,
        "people of a survey": [note.name, note.subject],
        "training": study(fleet._task()).terms.name,
        "escrow": escrow.account_of(bytes(8)),
        "sale": escrow.key_of(bytes(16)),
    })  # fmt: skip


# Questions, answers and models


def _write_questions(folder: Path) -> str:
    """Return a question of each kind as JSON, and the text whose hash is its key in ledgers."""
    from reticent.query import By, count, histogram, mean, proportion, quantile, total, variance
    from reticent.query.declarations import dataset_file
    from reticent.query.language.questions import resolve
    from reticent.query.language.tree import to_json

    where = {"and": [{"column": "age", "op": ">=", "value": 40}, {"column": "race", "in": ["white"]}]}
    queries = {
        "count": count(where=where),
        "total": total("income"),
        "mean": mean("income", where={"not": where}),
        "proportion": proportion(where),
        "variance": variance("income"),
        "histogram": histogram([By("age", bins=4), By("race")]),
        "quantile": quantile("income", 0.5),
    }
    data = dataset_file.parse((FILES / "census.yaml").read_text())
    return json.dumps({
        name: {"query": to_json(query), "text": resolve(query, data).text} for name, query in queries.items()
    })  # fmt: skip


def _write_answers(folder: Path) -> str:
    """Return the JSON of a price, an answer and a plan, with fields alone: noise has no seed."""
    from reticent.query import census, mean, open  # noqa: A004

    with open(census.write(folder / "answers", rows=100)) as session:
        asked = mean("income")
        price, answer = session.price(asked, epsilon=0.5), session.ask(asked, epsilon=0.5)
        plan = session.plan([asked], epsilon=0.5)
        found = {"price": price.to_json(), "answer": answer.to_json(), "plan": plan.to_json()}
    return json.dumps(_mask(found))


def _mask(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _mask(inner) for name, inner in value.items()}
    if isinstance(value, list):  # of values: how many there are may follow from noise
        return [_mask(inner) for inner in value[:1] if isinstance(inner, dict)]
    return ""


def _write_model(folder: Path) -> str:
    from reticent.federated.saved import How, Statement

    return json.dumps(Statement(fleet._task(), 9, How.CLIENTS, {"target": "braked"}).metadata())


def _write_station_texts(folder: Path) -> str:
    """Return what a provider of stations signs, with fields alone: its key is drawn."""
    from ..unit.location.stations import asking_town

    with closing(asking_town.provider(folder / "provider", journeys=asking_town.library())):
        names = {path.name: path.read_bytes() for path in sorted((folder / "provider").iterdir())}
    texts = {name: json.loads(content) for name, content in names.items() if content.startswith(b"{")}
    opened = {
        name: {field: json.loads(text) if text.startswith("{") else "" for field, text in file.items()}
        for name, file in texts.items()
    }
    return json.dumps(_mask(opened))


def _write_tensors(folder: Path) -> str:
    from reticent.store import tensors

    return tensors.packed({"update": np.arange(3, dtype="<i4"), "labels": np.ones(2, dtype="<f4")}).hex()


def _write_catalogue(folder: Path) -> str:
    """Return the mechanisms that signed texts name, with the fields that they carry."""
    from reticent.mechanisms import catalogue

    names = [*catalogue.NUMERIC, *catalogue.CATEGORICAL]
    return json.dumps({name: catalogue.loaded(name).travels for name in sorted(names)})


def _write_refusals(folder: Path) -> str:
    from reticent.service.refusals import STATUS

    return json.dumps(sorted({f"{status} {kind}" for status, kind in STATUS.values()}))


SAMPLES: dict[str, Callable[[Path], bytes | str]] = {
    "accounts": _write_accounts,
    "answers": _write_answers,
    "bill": _write_bill,
    "campaign.json": _write_campaign,
    "catalogue": _write_catalogue,
    "chain.json": _write_file(_write_chain_file, "chain.json"),
    "commitment": _write_commitment,
    "count-receipt": _write_count_receipt,
    "crowd.json": _write_file(_write_crowd_file, "crowd.json"),
    "crowd-modes": _write_crowd_modes,
    "crowd-task": _write_crowd_task,
    "crowd-update": _write_crowd_update,
    "disclosure-note": _write_disclosure_note,
    "enrolment": lambda folder: fleet.enrolment(3).to_json(),
    "federation": _write_federation,
    "hold": _write_hold,
    "hold-request": _write_hold_request,
    "home.json": _write_home,
    "ledger-export": _write_ledger_export,
    "model": _write_model,
    "questions": _write_questions,
    "refusals": _write_refusals,
    "stations": _write_station_texts,
    "tensors": _write_tensors,
    "witness-note": _write_file(_write_witness_note, "ledger.witness"),
}
