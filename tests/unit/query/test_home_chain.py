"""An account that moves into a contract, and the oracle that measures for it: still one budget."""

import itertools
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, redirect_stdout
from functools import partial
from io import StringIO

import pytest

import reticent
from reticent.apps.chain import work
from reticent.apps.chain.oracle import opened as opened_oracle
from reticent.apps.query.desk import Desk
from reticent.chain.keys import make_key
from reticent.chain.node import Node
from reticent.errors import AccountConflict, LedgerError, ParameterError
from reticent.ledger import Amount, SqlLedger, Unit
from reticent.ledger.ethereum.chain_file import ChainFile
from reticent.ledger.ethereum.ledger import EthereumLedger
from reticent.query import Session, census
from reticent.query import count as how_many
from reticent.query.chain import commitment
from reticent.query.chain.finding import connected
from reticent.query.declarations import account_moving, account_opening, dataset_file, home
from reticent.query.language.questions import resolve
from reticent.query.measure import Plan, plan
from reticent.query.notebook import Notebook
from reticent.query.rows import source
from reticent.service.settings import Settings


@pytest.fixture
def place(anvil, tmp_path):
    folder = tmp_path / "here"
    folder.mkdir()
    path = census.write(folder, rows=60)
    node = Node(anvil.url)
    for name in ("owner", "keeper", "anna"):
        node.rpc("anvil_setBalance", make_key(tmp_path / f"{name}.key").address, hex(10**19))
    node.close()
    deploy(anvil, tmp_path / "chain.json")
    return path


def deploy(anvil, out):
    with redirect_stdout(StringIO()):
        work.deploy(anvil.url, out.with_name("owner.key"), out=out, confirmations=None, forget_rpc=False)


def register(place, name="keeper", chain="chain.json"):
    base = place.parent.parent
    address = work.opened_key(base / f"{name}.key").address
    with redirect_stdout(StringIO()) as said:
        work.register(place, oracle=address, key=base / "owner.key", chain=base / chain, rpc=None)
    return said.getvalue()


def on_chain(place):
    file, data = ChainFile.read(place.parent.parent / "chain.json"), dataset_file.read(place)
    with connected(place, data, file, file.connect()) as ledger:
        return ledger.balance("census").spent


def oracle(place):
    base = place.parent.parent
    return opened_oracle(place, ChainFile.read(base / "chain.json"), work.opened_key(base / "keeper.key"))


def spend(path, part):
    with reticent.open(path) as session:
        cap = session.data.terms.cap
        session.count(where="income > 5", information=part * cap / 10**12)
        return session.balance().spent


def test_what_was_spent_before_counts_on_the_chain(place):
    spent = spend(place, 0.4)
    assert "Before, 40 % of it were spent here: they count there." in register(place)
    assert on_chain(place) == spent
    with pytest.raises(LedgerError, match=r"census\.yaml pays from the contract 31337/0x"):
        reticent.open(place)
    with (
        closing(Desk(Settings(place.parent, grid_s=0.0))) as desk,
        pytest.raises(LedgerError, match=r"^the account of census is not in this service"),
    ):
        desk.session("census")
    with oracle(place) as measuring:
        assert measuring._own.balance("census").spent == spent
    with oracle(place) as measuring:  # and once
        assert measuring._own.balance("census").spent == spent


def test_a_registration_that_was_cut_off_goes_on(place, monkeypatch):
    spent = spend(place, 0.3)

    def ended(*_):
        raise KeyboardInterrupt

    steps = ((home, "write"), (account_moving, "hand_over"), (home, "write"))
    for room, step in steps:  # on the chain before anything is written here, too
        with monkeypatch.context() as planted:
            planted.setattr(room, step, ended)
            with pytest.raises(KeyboardInterrupt):
                register(place)
    register(place)
    assert on_chain(place) == spent
    assert home.known(place).is_on_chain


def test_a_registration_that_was_cut_off_keeps_its_oracle(place, monkeypatch):
    spend(place, 0.3)

    def ended(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as planted:
        planted.setattr(home, "write", ended)
        with pytest.raises(KeyboardInterrupt):
            register(place)
    with pytest.raises(AccountConflict, match="account census is registered already"):
        register(place, "anna")
    with reticent.open(place) as session:  # and nothing is lost here
        assert session.balance().remaining > 0


def test_a_promise_that_was_cut_off_is_none(place, monkeypatch):
    def ended(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as planted:
        planted.setattr(commitment, "asdict", ended)
        with pytest.raises(KeyboardInterrupt):
            register(place)
    register(place)
    assert home.known(place).is_on_chain


def test_what_earlier_releases_spent_counts_on_the_chain(place):
    """They had no homes: one ledger for Python and the command, and one for a service."""
    data = dataset_file.read(place)
    for folder, age in ((home.folder(place), 5), (place.parent / home.SERVICE, 6)):
        folder.mkdir(exist_ok=True)
        rows = partial(source.connect, data, place.parent)
        with Session(data, rows, SqlLedger(folder / home.OWN), Notebook()) as session:
            session.count(where=f"income > {age}", information=0.2 * data.terms.cap / 10**12)
            spent = session.balance().spent
    assert "Before, 40 % of it were spent here: they count there." in register(place)
    assert on_chain(place) == 2 * spent
    with oracle(place) as measuring:
        assert measuring._own.balance("census").spent == 2 * spent


def test_an_account_on_a_chain_is_registered_at_no_other_contract(place, anvil, tmp_path):
    """A second declaration of the same rows has no promise beside it."""
    register(place)
    copy = place.with_name("copy.yaml")
    shutil.copyfile(place, copy)
    deploy(anvil, tmp_path / "other.json")
    with pytest.raises(LedgerError, match=r"copy\.yaml pays from ethereum:.*, and from no other ledger"):
        register(copy, chain="other.json")
    assert not commitment.place(copy).exists()
    with pytest.raises(AccountConflict, match="registered already"):
        register(place)


def test_a_registration_that_was_cut_off_goes_to_no_other_contract(place, anvil, tmp_path, monkeypatch):
    spend(place, 0.3)

    def ended(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as planted:
        planted.setattr(account_moving, "hand_over", ended)
        with pytest.raises(KeyboardInterrupt):
            register(place)
    copy = place.with_name("copy.yaml")
    shutil.copyfile(place, copy)
    deploy(anvil, tmp_path / "other.json")
    with pytest.raises(LedgerError, match="and from no other ledger"):
        register(copy, chain="other.json")


def test_analysts_who_were_quicker_than_the_move(place, monkeypatch, tmp_path):
    """Between the halves of a registration somebody buys there: together they get no more than the cap."""
    spent = spend(place, 0.4)

    def ended(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as planted:
        planted.setattr(account_moving, "hand_over", ended)
        with pytest.raises(KeyboardInterrupt):
            register(place)
    file, owner = ChainFile.read(tmp_path / "chain.json"), work.opened_key(tmp_path / "owner.key")
    anna, data = work.opened_key(tmp_path / "anna.key"), home.known(place).of(dataset_file.read(place))
    with work.opened_ledger(file, file.connect(), owner, owner.address) as ledger:
        ledger.allow("census", anna.address, data.terms.cap)
    with work.opened_ledger(file, file.connect(), anna, owner.address) as ledger:
        for income, tenths in ((9, 6), (8, 1)):
            asked = plan(resolve(how_many(where=f"income > {income}"), data))
            words = {"question": asked.question.text, "grid": asked.shift, "dimension": asked.values}
            ledger.declare("census", asked.question.key, **words)
            part = Amount(tenths * data.terms.cap // 10, Unit.MU2, data.relation)
            ledger.request("census", asked.question.key, part)
    register(place)
    assert on_chain(place) == data.terms.cap
    with oracle(place) as measuring:
        assert sorted(one.state.name for one in measuring.step()) == ["RECORDED", "REFUSED"]
        assert spent < measuring._own.balance("census").spent <= data.terms.cap


def test_a_ledger_beside_a_folder_that_was_renamed_still_counts(place, tmp_path):
    with reticent.open(place, ledger=place.parent / "chosen.sqlite") as session:
        session.count(where="income > 5", information=0.4 * session.data.terms.cap / 10**12)
        spent = session.balance().spent
    register(place)
    for name in ("there", "elsewhere"):  # before an oracle is opened, and after
        place.parent.rename(tmp_path / name)
        place = tmp_path / name / place.name
        with oracle(place) as measuring:
            assert measuring._own.balance("census").spent == spent


def test_an_oracle_waits_for_a_ledger_that_is_gone(place, tmp_path):
    with reticent.open(place, ledger=tmp_path / "chosen.sqlite") as session:
        session.count(where="income > 5", information=0.4 * session.data.terms.cap / 10**12)
        spent = session.balance().spent
    register(place)
    (tmp_path / "chosen.sqlite").rename(tmp_path / "kept.sqlite")
    with pytest.raises(
        LedgerError, match=r"census\.yaml left .*chosen\.sqlite, which is gone: bring it back"
    ):
        oracle(place)
    (tmp_path / "kept.sqlite").rename(tmp_path / "chosen.sqlite")
    with oracle(place) as measuring:
        assert measuring._own.balance("census").spent == spent


def test_who_is_on_the_chain_first_stays_there(place):
    register(place)
    with pytest.raises(LedgerError, match=r"pays from the contract"):
        reticent.open(place)
    copy = place.with_name("copy.yaml")
    shutil.copyfile(place, copy)
    with pytest.raises(LedgerError, match=r"pays from the contract"):
        reticent.open(copy)


def test_an_oracle_measures_for_no_account_that_is_elsewhere(place):
    """Planted: the contract is registered beside a living ledger, as the first releases let it be."""
    spend(place, 0.4)
    base = place.parent.parent
    file, key = ChainFile.read(base / "chain.json"), work.opened_key(base / "owner.key")
    with work.opened_ledger(file, file.connect(), key, key.address) as ledger:
        data = home.known(place).of(dataset_file.read(place))
        ledger.register(data.terms, oracle=work.opened_key(base / "keeper.key").address, commitment=bytes(32))
    with pytest.raises(LedgerError, match=r"pays from .*ledger\.sqlite, not from the contract"):
        opened_oracle(place, file, work.opened_key(base / "keeper.key"), owner=key.address)


@pytest.mark.parametrize("part", [0.0, 0.4])
def test_an_oracle_keeps_its_folder(place, tmp_path, part):
    from reticent.query.chain.oracle import open_oracle

    if part:  # what it takes over is noted in the same file
        spend(place, part)
    register(place)
    with oracle(place) as measuring:
        chain = measuring._chain
        with pytest.raises(LedgerError, match="the oracle keeps what it measured in"):
            open_oracle(place, lambda outbox: _Kept(chain), tmp_path / "elsewhere")


class _Kept:
    """A ledger that stays open."""

    def __init__(self, chain):
        self._chain = chain

    def __getattr__(self, name):
        return getattr(self._chain, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def test_what_is_on_a_chain_moves_nowhere(place, tmp_path):
    from reticent.apps.query.dataset_work import move

    register(place)
    with pytest.raises(ParameterError, match="it cannot move from there"):
        move(place, str(tmp_path / "x.sqlite"))
    assert not (tmp_path / "x.sqlite").exists()


def test_the_command_moves_and_tells(tmp_path, command):
    (tmp_path / "here").mkdir()
    path = census.write(tmp_path / "here", rows=60)
    spent = spend(path, 0.4)
    code, out, _ = command("dataset", "move", str(path), "--ledger", str(tmp_path / "new.sqlite"))
    assert code == 0
    assert "40 % of the budget were spent there, and count here." in " ".join(out.split())
    assert str(tmp_path / "new.sqlite") in "".join(command("dataset", "home", str(path))[1].split())
    with SqlLedger(tmp_path / "new.sqlite") as ledger:
        assert ledger.balance("census").spent == spent
    shutil.copytree(tmp_path / "here", tmp_path / "copy")
    copy = str(tmp_path / "copy" / "census.yaml")
    assert command("price", copy, "SELECT COUNT(*) FROM census WHERE income > 5", "--error", "9")[0] == 2
    assert command("dataset", "moved", copy)[0] == 0
    assert command("price", copy, "SELECT COUNT(*) FROM census WHERE income > 5", "--error", "9")[0] == 0


# Oracles and sellers beside a registration


@pytest.fixture
def drawn(monkeypatch):
    """The information of every draw that anybody makes, here or for the chain: what privacy it costs."""
    found, meant = [], Plan.measure

    def measure(self, exact, information, rng=None):
        found.append(information)
        return meant(self, exact, information, rng)

    monkeypatch.setattr(Plan, "measure", measure)
    return found


def buy(place, tenths, income):
    """Somebody whom the owner allows all asks on the chain; whether the contract let them."""
    base = place.parent.parent
    file, owner = ChainFile.read(base / "chain.json"), work.opened_key(base / "owner.key")
    anna, data = work.opened_key(base / "anna.key"), home.known(place).of(dataset_file.read(place))
    asked = plan(resolve(how_many(where=f"income > {income}"), data))
    words = {"question": asked.question.text, "grid": asked.shift, "dimension": asked.values}
    try:
        with work.opened_ledger(file, file.connect(), owner, owner.address) as ledger:
            ledger.allow("census", anna.address, data.terms.cap)
        with work.opened_ledger(file, file.connect(), anna, owner.address) as ledger:
            ledger.declare("census", asked.question.key, **words)
            part = Amount(tenths * data.terms.cap // 10, Unit.MU2, data.relation)
            ledger.request("census", asked.question.key, part)
    except LedgerError:
        return False
    return True


def sell(place, part, income):
    """Sell a question here, if this is where it is sold; whether it was."""
    try:
        with reticent.open(place) as session:
            session.count(where=f"income > {income}", information=part * session.data.terms.cap / 10**12)
    except LedgerError:
        return False
    return True


def measure(place):
    """Let the oracle do what it can, if it may be opened; whether it could."""
    try:
        with oracle(place) as measuring:
            measuring.step()
    except (LedgerError, ParameterError):
        return False
    return True


STEPS = {  # where a registration is cut off, in its order: what is called, and the how manieth call of it
    "promise": (work.Commitment, "write", 0),
    "register": (EthereumLedger, "register", 0),
    "registered": (home, "write", 0),
    "on its way": (account_moving, "hand_over", 0),
    "handed over": (work, "_charged", 0),
    "charged": (home, "write", 1),
}


def cut_off(place, monkeypatch, step):
    """A registration that ends right before one of its steps."""
    owner, name, calls = STEPS[step]
    meant, left = getattr(owner, name), [None] * calls

    def ended(*given, **options):
        if not left:
            raise KeyboardInterrupt
        left.pop()
        return meant(*given, **options)

    with monkeypatch.context() as planted:
        planted.setattr(owner, name, ended)
        with pytest.raises(KeyboardInterrupt):
            register(place)


def attacked(place, monkeypatch, step):
    """Buy, sell and measure wherever one can while a registration is cut off, and after it was ended."""
    assert sell(place, 0.4, 5)
    cut_off(place, monkeypatch, step)
    bought = buy(place, 9, 9)
    told = [measure(place), sell(place, 0.5, 6), measure(place)]
    register(place)
    assert measure(place)
    assert not sell(place, 0.5, 7)
    buy(place, 1, 8)
    measure(place)
    return bought, told, dataset_file.read(place).terms.cap


@pytest.mark.parametrize("step", STEPS)
def test_no_oracle_measures_while_a_registration_is_under_way(place, monkeypatch, drawn, step):
    bought, told, cap = attacked(place, monkeypatch, step)
    assert bought == (step not in ("promise", "register", "charged"))  # which leaves too little there
    assert told == [False, step in ("promise", "register", "registered"), False]
    assert sum(drawn) <= cap


@pytest.mark.parametrize("step", ["registered", "on its way", "handed over"])
def test_planted_an_oracle_that_does_not_look_where_the_account_is(place, monkeypatch, drawn, step):
    def at_home(path, data, chain, own, folder):
        registered = account_opening.as_registered(data, chain.balance("census").terms)
        own.open(registered.terms)
        return registered

    monkeypatch.setattr("reticent.query.chain.oracle._at_home", at_home)
    _, told, cap = attacked(place, monkeypatch, step)
    assert told[0]
    assert sum(drawn) > cap


def test_a_registration_among_oracles_and_sellers(place, drawn):
    """All at once: whoever comes when, what is drawn in all stays below the cap."""
    assert sell(place, 0.2, 5)
    done, sold, measured = threading.Event(), [], []

    def selling():
        for number in itertools.count(10):
            sold.append(sell(place, 0.1, number))
            if done.is_set() or not sold[-1]:
                return

    def measuring():
        while not done.is_set():
            measured.append(measure(place))

    with ThreadPoolExecutor(2) as pool:
        others = [pool.submit(selling), pool.submit(measuring)]
        try:
            register(place)
            buy(place, 9, 9)
        finally:
            done.set()
        for one in others:
            one.result()
    assert measure(place)
    assert not sell(place, 0.1, 8)
    assert 0 < sum(drawn) <= dataset_file.read(place).terms.cap
