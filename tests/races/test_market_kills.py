"""Kill -9 of service, device and buyer: each sale is charged, counted and paid once, or not at all."""

import contextlib
import multiprocessing
import os
import random
import signal
import threading
from collections import Counter

import pytest

from reticent.errors import SourceError
from reticent.market import escrow
from reticent.market.store import PAID, STORED, SaleStore
from reticent.privacy import UNITS_PER_ONE

from ..unit.collect import fleet
from ..unit.market.trade import NOW, Stall, faults

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

FORK = multiprocessing.get_context("fork")
VICTIMS = ("service", "device", "buyer")
LATEST_S = 0.03


class Line:
    """A market at the other end of a pipe."""

    def __init__(self, pipe):
        self.pipe, self.messages = pipe, 0

    def _call(self, verb, given):
        self.messages += 1
        try:
            self.pipe.send((verb, given))
            return self.pipe.recv()
        except (EOFError, OSError) as error:
            raise SourceError("the service was killed") from error

    def hold(self, asks):
        return self._call("hold", asks)

    def receive(self, reports):
        return self._call("receive", reports)


def answer(market, pipe):
    """Do what comes, until the other end is gone."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            verb, given = pipe.recv()
            pipe.send(getattr(market, verb)(given))


def serve(folder, pipe, plant):
    plant()
    stall = Stall(folder)
    stall.market.settle()
    pipe.send("up")
    answer(stall.market, pipe)


def sell(folder, number, pipe):
    """A device that sells, takes its bills from a file of its own, and tells when it is done."""
    stall = _Files(folder)
    with contextlib.closing(stall):
        pipe.send(("done", stall.sell(number, Line(pipe))))


def close(folder, place, pipe, plant):
    plant()
    stall = Stall(folder)
    held = list(stall.store.bills().values())[place]
    pipe.send("up")
    stall.market.close(held)
    pipe.send("closed")


class _Files:
    """Devices, with the signed files of the bills."""

    def __init__(self, folder):
        self.folder, self.opened = folder, []

    def sell(self, number, desk):
        seller, bills = self.seller(number)
        return [one.outcome.value for one in seller.sell(bills, {"speed": 50.0}, desk, now=NOW)]

    def seller(self, number):
        from reticent.collect.device import Device
        from reticent.market.seller import Seller

        device = Device(self.folder / f"{number}.ledger", fleet.enrolment(number), fleet.SIGNER, lifetime=2.0)
        self.opened.append(device)
        seller = Seller(device, price=20)
        return seller, [seller.take(*files) for files in FILES]

    def close(self):
        for device in self.opened:
            device.close()


FILES = []  # of the bills; what is forked has them too


class World:
    """A market in a folder, devices 0, 1, ..., and what happened."""

    def __init__(self, folder, seed, plant=lambda: None, bills=4):
        self.folder, self.plant, self.rng = folder, plant, random.Random(seed)
        self.cut = Counter()
        with contextlib.closing(Stall(folder)) as stall:
            for number in range(bills):
                stall.offer(f"bill-{number}", deposit=(10**6, 10**6, 4000, 900)[number % 4])
            FILES[:] = [stall.store.files(one) for one in stall.store.bills().values()]
        self.bills, self.first = bills, 1000 * seed  # an enrolment is known by one ledger for ever
        self.device = self.first

    def kill(self):
        """One life of somebody, who is killed at some moment of it."""
        victim = self.rng.choice(VICTIMS) if self.rng.random() < 0.9 else "service"
        here, there = FORK.Pipe()
        {"service": self._service, "device": self._device, "buyer": self._buyer}[victim](here, there)
        here.close()

    def _end(self, child, victim, is_done):
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
        child.join()
        self.cut[victim] += not is_done

    def _later(self, child):
        timer = threading.Timer(self.rng.uniform(0.0, LATEST_S), lambda: os.kill(child.pid, signal.SIGKILL))
        timer.start()
        return timer

    def _service(self, here, there):
        child = FORK.Process(target=serve, args=(self.folder, there, self.plant))
        child.start()
        there.close()
        here.recv()
        is_done, files = False, _Files(self.folder)
        line, messages = Line(here), self.rng.randrange(3)
        call, timers = line._call, []

        def counted(verb, given):
            if line.messages >= messages and not timers:
                timers.append(self._later(child))
            return call(verb, given)

        line._call = counted
        with contextlib.closing(files), contextlib.suppress(SourceError):
            files.sell(self.device, line)
            is_done = True
        for timer in timers:
            timer.join()
        self._end(child, "service", is_done)
        self._next(is_done)

    def _device(self, here, there):
        child = FORK.Process(target=sell, args=(self.folder, self.device, there))
        child.start()
        there.close()
        is_done, timers, left = False, [], self.rng.randrange(3)
        with contextlib.closing(Stall(self.folder)) as stall, contextlib.suppress(EOFError, OSError):
            while True:
                if not left and not timers:
                    timers.append(self._later(child))
                left -= 1
                verb, given = here.recv()
                if verb == "done":
                    is_done = True
                    break
                here.send(getattr(stall.market, verb)(given))
        for timer in timers:
            timer.join()
        self._end(child, "device", is_done)
        self._next(is_done)

    def _buyer(self, here, there):
        place = self.rng.randrange(1, self.bills) if self.rng.random() < 0.1 else 3
        child = FORK.Process(target=close, args=(self.folder, place, there, self.plant))
        child.start()
        there.close()
        here.recv()
        timer = self._later(child)
        is_done = False
        with contextlib.suppress(EOFError, OSError):
            is_done = here.recv() == "closed"
        timer.join()
        self._end(child, "buyer", is_done)

    def _next(self, is_done):
        """Somebody else sells, once this one is done or was killed a few times."""
        self.device += is_done or self.rng.random() < 0.5

    def finish(self):
        """Everybody sells in peace, all bills are closed; what is wrong then."""
        found = []
        with (
            contextlib.closing(Stall(self.folder)) as stall,
            contextlib.closing(_Files(self.folder)) as files,
        ):
            stall.market.settle()
            charged = {}
            for number in range(self.first, self.device + 1):
                files.sell(number, stall.market)
                device = files.opened[-1]
                charged[number] = round(device.spent * UNITS_PER_ONE)
                device.close()
            stall.clock.now += 1000  # what was held, and not used for another level was picked, is free again
            for held in stall.store.bills().values():
                done = stall.market.close(held)
                if (done.state, done.paid + done.refund) != ("closed", held.deposit):
                    found.append(f"{done.paid} and {done.refund} are not {held.deposit}: {done.state}")
            found += faults(stall.market)
            for number, units in charged.items():
                sold = stall.market.earned(fleet.enrolment(number).id)
                due = sum(held.bill.levels[one.place].units for held, one in sold if one.state == PAID)
                if units != due:
                    found.append(f"device {number} was charged {units} for sales of {due}")
                found += [f"device {number}: stored, not paid" for _, one in sold if one.state == STORED]
        return found


def survive(folder, kills, *, seed=1, plant=lambda: None):
    world = World(folder, seed, plant)
    for _ in range(kills):
        world.kill()
    return world.finish(), world


def test_no_kill_loses_or_doubles_a_sale(tmp_path, race_counter):
    found, world = survive(tmp_path, 25)
    race_counter.report(f"25 kills, {sum(world.cut.values())} of them before the work was done")
    assert found == []


@pytest.mark.slow
def test_a_thousand_kills_lose_and_double_nothing(tmp_path, race_counter):
    found, world = survive(tmp_path, 1000, seed=2)
    race_counter.report(f"1,000 kills, before the work was done: {dict(world.cut)}")
    assert found == []


def test_planted_payments_under_fresh_keys_are_caught(tmp_path, race_counter):
    """A payment that is tried again after a crash is made twice."""

    def plant():
        key_of = escrow.key_of
        escrow.key_of = lambda sale: key_of(sale) + os.urandom(4).hex()

    repeat_until_caught(tmp_path, plant, race_counter)


def test_planted_marks_before_payments_are_caught(tmp_path, race_counter):
    """A sale is marked as paid, and then paid: a crash in between pays nobody."""

    def plant():
        pay = escrow.pay
        mark = SaleStore.mark
        held = []

        def late(ledger, dues):
            grants = [None] * len(dues)
            held.append((ledger, dues))
            return grants

        def early(self, sales):
            mark(self, sales)
            while held:
                pay(*held.pop())

        escrow.pay, SaleStore.mark = late, early

    repeat_until_caught(tmp_path, plant, race_counter)


def repeat_until_caught(folder, plant, race_counter):
    def attempt(number):
        place = folder / str(number)
        place.mkdir()
        return survive(place, 15, seed=number, plant=plant)[0]

    race_counter.repeat_until_caught(attempt, max_attempts=60)
