"""Ledgers in SQL, and what is true of them: for several files of tests."""

import contextlib
import multiprocessing
import signal
import threading

from reticent.ledger import Amount, Terms, Unit, merkle
from reticent.privacy import Neighbours

REPLACE = Neighbours.REPLACE_ONE
FORK = multiprocessing.get_context("fork")


def terms(name="a", cap=1000):
    return Terms(name, Unit.MU2, REPLACE, "one person", cap)


def amount(units):
    return Amount(units, Unit.MU2, REPLACE)


def rows(ledger):
    """Every row of every table."""
    tables = ["meta", "head", "account", "bought", "measurement", "answered", "entry", "node"]
    with ledger._store.reading():
        return {table: sorted(map(repr, ledger._store.all(f"SELECT * FROM {table}"))) for table in tables}


def consistent(ledger):
    head = ledger.head()
    leaves = [merkle.leaf_hash(leaf.encode()) for leaf in ledger.leaves()]
    return (len(leaves), merkle.root_of(leaves)) == (head.size, head.root)


@contextlib.contextmanager
def interrupted_once(is_time):
    """One KeyboardInterrupt for the main thread when it is time.

    A signal that comes just before the thread begins to wait does not wake it: it is sent until it did.
    """
    came, ends, main = threading.Event(), threading.Event(), threading.main_thread().ident

    def once(number, frame):
        if not came.is_set():
            came.set()
            raise KeyboardInterrupt

    def send():
        while not came.is_set() and not ends.wait(0.01):
            if is_time():
                signal.pthread_kill(main, signal.SIGINT)

    before = signal.signal(signal.SIGINT, once)
    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()
        signal.signal(signal.SIGINT, before)


class Surprise(Exception):
    pass


def half_done(error):
    """Work that charges and then fails."""

    def work(batch):
        batch.request(terms(), "half", 10, "half")
        raise error

    return work
