"""A service with something of everything in it, for the pictures of the docs and the look at every page."""

import contextlib
import json
import time

import httpx
import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reticent.apps.collect.collecting import Collecting
from reticent.apps.stations import town
from reticent.apps.stations.provider_work import provider
from reticent.collect.design import designed
from reticent.federated import saved
from reticent.federated import server as training_server
from reticent.federated.curves import Origin
from reticent.federated.models import Logistic
from reticent.federated.tasks import designed as designed_task
from reticent.fleet.enrolment import enrolled
from reticent.fleet.secret_file import kept_secret
from reticent.location import payload
from reticent.location.campaign import Campaign
from reticent.location.campaign import Settings as CampaignSettings
from reticent.mechanisms.record import Category, Number
from reticent.query import census
from reticent.query.language import tree
from reticent.service.settings import Settings

from ..unit.collect.many_devices import Fleet
from ..unit.operating import operator
from .browsing import rows_of_its_own, served
from .running import make_keys
from .test_market import Bazaar
from .test_market_pages import dealt

HOUSE = (  # paths that everybody of the house sees, but for auditors those to ask
    "/",
    "/ledger",
    "/surveys",
    "/surveys/traffic",
    "/places",
    "/places/paris",
    "/market",
    "/market/federations/north",
    "/datasets/census",
    "/datasets/census/ask",
    "/datasets/census/answers",
    "/numbers",
    "/datasets/census/reuse",
)
OWNERS = (
    "/audits",
    "/stations",
    "/stations/town",
    "/owner/keys",
    "/owner/register",
    "/owner/register?file=extra.csv",
    "/datasets/census",
)


@contextlib.contextmanager
def gallery(folder, *, rows=20_000, devices=3000, people=1500):
    """Serve a folder that is furnished, with questions asked, reports sent and rounds ended."""
    census.write(folder, rows=rows)
    text = (folder / "census.yaml").read_text().replace("name: census", "name: clinic")
    text = rows_of_its_own(folder, "clinic", text).replace("epsilon: 8", "epsilon: 2")
    (folder / "clinic.yaml").write_text(text)
    (folder / "extra.csv").write_text("age,kind,vote\n30,a,true\n40,b,false\n")
    keys = make_keys(folder)
    _survey(folder, devices)
    _campaign(folder, people)
    _stations(folder)
    with served(folder, keys) as found:
        _asked(found.desk)
        found.training = _training(found, folder)
        found.bill = _market(found, folder)
        dealt(folder)
        found.app.state.places.named("paris").end_round()
        _reported(found.app.state.places.named("paris"), folder, people)
        yield found


def _asked(desk):
    alice, bob = desk.state.named("alice"), desk.state.named("bob")
    desk.ask(alice, "census", tree.mean("income"), information=0.06)
    desk.ask(bob, "census", tree.mean("income"), information=0.02)
    desk.ask(bob, "census", tree.histogram("race"), information=0.3)
    desk.ask(alice, "census", tree.mean("hours", by=["sex"]), information=0.2)
    desk.ask(alice, "census", tree.mean("income"), information=0.2)
    desk.ask(bob, "clinic", tree.count(), information=0.02)
    desk.ask(bob, "clinic", tree.quantile("age", [0.25, 0.5, 0.75]), information=0.02)


def _survey(folder, devices):
    """Reports of three days."""
    day = 24 * 3600
    with contextlib.closing(Collecting(Settings(folder))) as collecting:
        survey = designed(
            "traffic",
            [Number("speed", (0.0, 130.0)), Category("kind", ["car", "bus", "bike", "train"])],
            epsilon=2.0,
            purpose="To plan roads, we ask how fast vehicles are.",
            start=int(time.time()) - 2 * day - 3600,
            period_s=day,
            periods=30,
            mechanisms={"speed": "OneBit", "kind": "KRR"},
        )
        fleet = Fleet(devices, survey, key=collecting.signing_key, master=collecting.master)
        collecting.collector.collect(fleet.file, collecting.signer)
        for period in range(3):
            collecting.collector.receive(fleet.reports(period))
        collecting.collector.receive([b"nonsense"])


def _campaign(folder, people):
    own = folder / ".service"
    key = Ed25519PrivateKey.from_private_bytes(kept_secret(own / "survey.key"))
    settings = CampaignSettings(
        "paris", "To plan night buses, we ask in which part of Paris people are.",
        48.8286, 48.8798, 2.2855, 2.3909, 11, 15, 1.0, 5,
    )  # fmt: skip
    made = Campaign.begin(
        folder / "places" / "paris", settings, operator(kept_secret(own / "enrolment.key")), key
    )
    with contextlib.closing(made) as campaign:
        _reported(campaign, folder, people)


def _reported(campaign, folder, people):
    """Everybody reports, drawn by the round's channel around two centres."""
    master = kept_secret(folder / ".service" / "enrolment.key")
    asked, rng = campaign.current, np.random.default_rng(1)
    grid = asked.grid
    shares = 0.02 + sum(np.exp(-((grid.centres - at) ** 2).sum(axis=1)) for at in ((2.0, 4.0), (5.0, 2.5)))
    true = rng.choice(grid.size, people, p=shares / shares.sum())
    said = [int(rng.choice(grid.size, p=asked.channel.probabilities(int(cell)))) for cell in true]
    campaign.add([payload.written(asked, enrolled(master), cell) for cell in said])


def _stations(folder):
    for name in ("files", "stations"):
        (folder / name).mkdir()
    edges, stations = town.write(folder / "files")
    provider(
        folder / "stations" / "town",
        file=edges, nodes=None, stations=stations, purpose="The nearest free stations.", level=5.0,
        horizon=4.0, k=3, m=10, period=300, segment=100.0, journeys=40,
    )  # fmt: skip


class _Caller:
    """A service on a port, called as one in this process is."""

    def __init__(self, found):
        self.app, self.keys, self._url = found.app, found.keys, found.url

    def call(self, who, method, path, **options):
        headers = dict(options.pop("headers", {}))
        if who is not None:
            headers["Authorization"] = f"Bearer {self.keys[who]}"
        return httpx.request(method, f"{self._url}{path}", headers=headers, timeout=60, **options)

    def get(self, who, path):
        return self.call(who, "GET", path)


def _market(found, folder):
    """A bill with two sales, of the buyer bert."""
    (folder / "sellers").mkdir()
    bazaar = Bazaar(_Caller(found), folder / "sellers").fund()
    for _ in range(2):
        seller, bills = bazaar.seller()
        seller.sell(bills, {"speed": 50.0}, bazaar.desk)
    for device in bazaar.devices:
        device.close()
    return bazaar.bill


def _training(found, folder):
    """A training whose operator used this ledger, after two of its rounds, and published how good it is."""
    task = designed_task(
        "braking", Logistic(2), epsilon=2.0, purpose="To warn drivers.", rounds=5, group=100, rate=1.0
    )
    found.app.state.collecting.operator.record.learn(training_server.study(task), {0: 100, 1: 100})
    publish(folder / "trainings" / "braking", task, [(1, 0.66, 0.31), (2, 0.52, 0.24)])
    return f"/trainings/{task.id.hex()}"


def publish(place, task, points, origin=Origin.HOLD_OUT):
    """Put a model and (round, loss, error) of it where a service finds them."""
    place.mkdir(parents=True)
    statement = saved.Statement(task, len(points), saved.How.CLIENTS)
    saved.save(place / "model.safetensors", np.zeros(task.dimensions), statement)
    lines = [
        json.dumps({"number": at, "loss": loss, "error": error, "origin": origin.value})
        for at, loss, error in points
    ]
    (place / "rounds.jsonl").write_text("\n".join(lines))
