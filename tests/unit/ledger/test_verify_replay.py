"""The rules of the log itself, and checkpoints that were kept elsewhere."""

import shutil
from contextlib import closing

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reticent.errors import LedgerDamaged, RolledBack
from reticent.ledger import SqlLedger, entries
from reticent.ledger.checkpoint import parse, sign
from reticent.ledger.replay import Replay
from reticent.ledger.verify import verify

from .tampered_ledgers import KEY, TERMS, amount, filled

# Replay: rules of the log itself


def log(*more):
    return [
        entries.encode("ledger", origin="o", version=1),
        entries.encode(
            "open", account=0, cap=10, commitment="0" * 64, minimum=2, neighbours="METRIC", unit="mu2"
        ),
        *more,
    ]


def request(**fields):
    told = {"account": 0, "charged": 5, "commitment": "0" * 64, "key": 0, "measurement": 0, **fields}
    return entries.encode("request", **told)


@pytest.mark.parametrize(
    ("leaves", "rule"),
    [
        (log(request(account=1)), "entry 2: account 1 was not opened"),
        (log(request(charged=1)), "entry 2: charges less than the minimum"),
        (log(request(charged=11)), "entry 2: passes the cap of account 0"),
        (log(request(), request(measurement=1, charged=6)), "entry 3: passes the cap"),
        (log(request(key=1)), "entry 2: key 1 is not one of account 0"),
        (log(request(measurement=1)), "entry 2: measurement 1 is not the next"),
        (log(request(), request()), "entry 3: measurement 0 is not the next"),
        (log(entries.encode("fulfil", commitment="0" * 64, measurement=0)), "entry 2: measurement 0 was not"),
        (
            log(request(), *[entries.encode("fulfil", commitment="0" * 64, measurement=0)] * 2),
            "was recorded before",
        ),
        (log(log()[1]), "entry 2: account 0 is not the next"),
        (log(log()[0]), "entry 2: a log begins"),
        (log()[1:], "entry 0: a log begins"),
        ([entries.encode("ledger", origin="o", version=9)], "version 9 is not known"),
        (
            log(request(), entries.encode("recover", account=0, head="1:" + "0" * 64, spent=4)),
            "must not lower",
        ),
        (log(entries.encode("recover", account=0, head="1:" + "0" * 64, spent=11)), "nor pass its cap"),
        (
            log(entries.encode("recover", account=1, head="1:" + "0" * 64, spent=1)),
            "account 1 was not opened",
        ),
        (log(entries.encode("answer", account=1, commitment="0" * 64)), "account 1 was not opened"),
        (log("{}"), "entry 2: an entry is not in canonical form"),
        (log(log()[1].replace('"account":"0"', '"account":"1"').replace("mu2", "mu3")), "impossible terms"),
        (
            log(log()[1].replace('"account":"0"', '"account":"1"').replace("METRIC", "NONE")),
            "impossible terms",
        ),
        (log(log()[1].replace('"account":"0"', '"account":"1"').replace('"10"', '"1"')), "impossible terms"),
        (
            log(log()[1].replace('"account":"0"', '"account":"1"').replace('"10"', f'"{1 << 62}"')),
            "impossible terms",
        ),
    ],
)
def test_replay_refuses(leaves, rule):
    with pytest.raises(LedgerDamaged, match=rule):
        Replay().read(leaves)


def test_replay_adds_up():
    replay = Replay()
    replay.read(log(request(), request(measurement=1, charged=5)))
    replay.read([entries.encode("recover", account=0, head="1:" + "0" * 64, spent=10)])
    assert (replay.totals(), replay.size, replay.recoveries) == ({0: 10}, 5, 1)


# Checkpoints kept elsewhere


class Remembered:
    """A witness that remembers one head."""

    def __init__(self, ledger):
        self.seen = ledger.checkpoint(), ledger.totals()

    def last(self, origin):
        return self.seen


def test_a_checkpoint_on_the_way_holds(database):
    with closing(filled(database, 20)) as ledger:
        early, public = ledger.checkpoint(), KEY.public_key()
        ledger.request("census", "later", amount(TERMS[0], 50))
        report = verify(ledger, checkpoint=early, public_key=public, witness=Remembered(ledger))
        assert (report.checked, report.witnessed) == (parse(early)[0].size, report.size)
        assert verify(ledger, checkpoint=ledger.checkpoint()).checked == report.size


def test_a_rolled_back_ledger_verifies_alone_and_not_against_what_was_seen(tmp_path):
    """The planted control: an old backup is a perfect ledger. Only memory elsewhere tells."""
    with closing(filled(tmp_path / "a.db", 20)) as ledger:
        pass
    shutil.copyfile(tmp_path / "a.db", tmp_path / "backup.db")
    with closing(SqlLedger(tmp_path / "a.db", key=KEY)) as ledger:
        ledger.request("census", "later", amount(TERMS[0], 50))
        late, witness = ledger.checkpoint(), Remembered(ledger)
    with closing(SqlLedger(tmp_path / "backup.db", key=KEY)) as backup:
        verify(backup)
        size = backup.head().size
        for evidence in ({"checkpoint": late}, {"witness": witness}):
            with pytest.raises(RolledBack, match=f"has {size} entries, the .* saw {size + 1}"):
                verify(backup, **evidence)
        backup.request("census", "another", amount(TERMS[0], 50))  # the fork: as long, and different
        verify(backup)
        for evidence in ({"checkpoint": late}, {"witness": witness}):
            with pytest.raises(RolledBack, match="forked"):
                verify(backup, **evidence)
        backup.request("census", "more", amount(TERMS[0], 50))  # longer than what was seen
        verify(backup)
        with pytest.raises(RolledBack, match="forked"):
            verify(backup, witness=witness)


def test_totals_in_a_checkpoint_are_checked(database):
    with closing(filled(database, 5)) as ledger:
        head = ledger.head()
        lie = sign(type(head)(head.origin, head.size, head.root, bytes(32)), head.origin, KEY)
        with pytest.raises(RolledBack, match="totals"):
            verify(ledger, checkpoint=lie)
        witness = Remembered(ledger)
        witness.seen[1][0] += 1
        with pytest.raises(RolledBack, match="account 0 has spent less"):
            verify(ledger, witness=witness)
        witness.seen = None
        with pytest.raises(RolledBack, match="never saw"):
            verify(ledger, witness=witness)


def test_a_checkpoint_must_be_signed_and_of_this_log(database, tmp_path):
    other = Ed25519PrivateKey.from_private_bytes(bytes(32))
    with closing(filled(database, 5)) as ledger:
        with pytest.raises(LedgerDamaged, match="not signed"):
            verify(ledger, checkpoint=sign(ledger.head(), ledger.origin, other), public_key=KEY.public_key())
        with closing(SqlLedger(tmp_path / "other.db", origin="other", key=KEY)) as second:
            text = second.checkpoint()
        with pytest.raises(RolledBack, match="of the log other"):
            verify(ledger, checkpoint=text)
