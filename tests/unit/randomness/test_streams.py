"""Streams: no two workers ever share one, and the blocks never change what is drawn."""

import itertools
import multiprocessing
import os
import pickle
import sys
import threading

import numpy as np
import pytest

from reticent.errors import ParameterError, ParameterTypeError, ReticentError
from reticent.mechanisms.categorical import KRR
from reticent.randomness import SECURE, SecureStream, SimulationStream, Stream, secure_or, streams

pytestmark = pytest.mark.secure_draws


class CopiedStream(Stream):
    """Planted bug: one key stream for everybody, as a module-level generator would be."""

    def __init__(self):
        self._held = streams._KeyStream(os.urandom(32), os.urandom(16))

    def _take(self):
        return self._held

    def _give_back(self, held):
        pass


def words_of_forked_workers(stream, workers, draws):
    """Every word that `workers` forked processes and their parent draw from `stream`."""
    stream.words(1)  # the parent's key and buffer exist before the fork
    readers = []
    for _ in range(workers):
        reader, writer = multiprocessing.Pipe(duplex=False)
        pid = os.fork()
        if pid == 0:
            writer.send_bytes(stream.words(draws).tobytes())
            os._exit(0)
        writer.close()
        readers.append((reader, pid))
    words = [stream.words(draws)]
    for reader, pid in readers:
        words.append(np.frombuffer(reader.recv_bytes(), dtype=np.uint64))
        os.waitpid(pid, 0)
    return np.concatenate(words)


def words_of_threads(stream, workers, draws):
    drawn, together = [], threading.Barrier(workers)

    def work():
        together.wait()
        drawn.append(stream.words(draws))

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return np.concatenate(drawn)


def repeats(words):
    """Words that occur twice. With n uniform words the chance of any is below n^2 2^-65."""
    return words.size - np.unique(words).size


# T13. 65,000 words: false-alarm rate below 1.2e-10 per test.
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_forked_workers_share_nothing():
    assert repeats(words_of_forked_workers(SecureStream(), workers=64, draws=1000)) == 0


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_the_fork_check_catches_a_copied_generator():
    assert repeats(words_of_forked_workers(CopiedStream(), workers=4, draws=1000)) >= 3000


def test_threads_share_nothing():
    assert repeats(words_of_threads(SecureStream(), workers=16, draws=4000)) == 0


def test_the_thread_check_catches_a_copied_generator():
    class PerThreadCopy(CopiedStream):
        def _take(self):
            return streams._KeyStream(bytes(32), bytes(16))

    assert repeats(words_of_threads(PerThreadCopy(), workers=4, draws=1000)) >= 3000


def test_a_secure_stream_is_rekeyed_after_a_bounded_volume(monkeypatch):
    monkeypatch.setattr(streams, "REKEY_BYTES", 2 * streams.BUFFER_BYTES)
    monkeypatch.setattr(streams, "_PER_THREAD", threading.local())
    stream = SecureStream()
    held = []  # kept, so that no two live at the same address
    for _ in range(8):
        stream.words(streams.BUFFER_BYTES // 8)
        held.append(stream._take())
        stream._give_back(held[-1])
    assert len({id(key_stream) for key_stream in held}) >= 4


def test_a_secure_stream_can_be_pickled_because_it_holds_nothing():
    assert isinstance(pickle.loads(pickle.dumps(SECURE)), SecureStream)
    assert vars(SECURE) == {}


@pytest.mark.parametrize("sizes", [[70_000], [1, 69_999], [32_768, 5, 37_227], [7] * 10_000])
def test_the_size_of_requests_does_not_change_the_words(sizes):
    stream = SimulationStream(3)
    pieces = np.concatenate([stream.words(size) for size in sizes])
    assert np.array_equal(pieces, SimulationStream(3).words(70_000))


def test_units_are_the_high_bits_of_the_words():
    words, units = SimulationStream(9).words(1000), SimulationStream(9).units(1000)
    assert np.array_equal((units - 1.0) * 2.0**52, (words >> np.uint64(12)).astype(float))
    assert units.min() >= 1.0
    assert units.max() < 2.0


def test_simulation_streams_differ_by_seed_and_by_number():
    drawn = [
        SimulationStream(1),
        SimulationStream(2),
        SimulationStream(1).spawn(0),
        SimulationStream(1).spawn(1),
    ]
    assert repeats(np.concatenate([stream.words(1000) for stream in drawn])) == 0
    again = SimulationStream(1).spawn(1).words(5)
    assert np.array_equal(again, SimulationStream(1).spawn(1).words(5))


def test_a_simulation_stream_refuses_to_be_shared():
    stream = SimulationStream(1)
    with pytest.raises(ReticentError, match="send its seed and a number"):
        pickle.dumps(stream)
    caught = []

    def use():
        try:
            stream.words(1)
        except ReticentError as error:
            caught.append(str(error))

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert caught == [
        "a SimulationStream belongs to the thread that made it: give each worker .spawn(number)"
    ]


def test_nothing_but_a_stream_selects_randomness():
    assert secure_or(None) is SECURE
    for wrong in (0, 7, "seed", np.random.default_rng(0), True):
        with pytest.raises(ParameterTypeError, match="rng must be None"):
            secure_or(wrong)
    with pytest.raises(ParameterError, match="seed must be >= 0, got -1"):
        SimulationStream(-1)


def test_secure_words_look_uniform():
    """Each bit of 10^5 words is set half of the time. False-alarm rate 64 * 6e-13 = 4e-11."""
    words = SECURE.words(100_000)
    bits = np.unpackbits(words.view(np.uint8)).reshape(-1, 64).mean(axis=0)
    assert np.abs(bits - 0.5).max() < 7.2 * 0.5 / np.sqrt(100_000)


def overlap(stream):
    """Words that a draw nested into the use of another shares with it, and whether it changed the first."""
    outer = next(pieces := stream.word_blocks(1000))
    before = outer.copy()
    nested = stream.words(70_000)
    shared = np.isin(outer, nested).sum()
    pieces.close()
    return int(shared), bool((outer != before).any())


def test_nested_draws_share_nothing():
    """A signal handler, a second generator, a value that draws when it is read. False-alarm rate 1e-11."""
    assert overlap(SecureStream()) == (0, False)
    with pytest.raises(ReticentError, match="used within its own use"):
        overlap(SimulationStream(1))


def test_the_nesting_check_catches_a_shared_buffer():
    assert overlap(CopiedStream())[1]


def test_a_child_with_the_same_number_is_noticed(monkeypatch):
    """As in a container, where parent and child are both number 1."""
    monkeypatch.setattr(streams.os, "getpid", lambda: 1)
    assert repeats(words_of_forked_workers(SecureStream(), workers=2, draws=1000)) == 0
    monkeypatch.setattr(streams, "_process", lambda: (1, 0))  # planted: the number alone
    assert repeats(words_of_forked_workers(SecureStream(), workers=2, draws=1000)) >= 1000


def draw_inside_each_call(work):
    """Draw at every call that `work` makes within the streams, as a signal handler may; return how often."""
    draws = itertools.count()

    def handler(frame, event, argument):
        if event == "call" and frame.f_code.co_filename == streams.__file__:
            sys.setprofile(None)
            SECURE.words(4000)
            next(draws)
            sys.setprofile(handler)

    sys.setprofile(handler)
    try:
        work()
    finally:
        sys.setprofile(None)
    return next(draws)


def test_a_signal_handler_may_draw():
    mechanism, values = KRR(epsilon=1.0, categories=4), np.ones(32_768, dtype=np.int64)

    def sample():
        symbols = mechanism.sample(values)
        assert symbols.min() >= 0
        assert symbols.max() < 4

    assert draw_inside_each_call(sample) > 3
