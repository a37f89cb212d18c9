"""Draws in a signal handler that a timer calls in the middle of other draws."""

import signal

import numpy as np

from reticent.mechanisms.categorical import KRR
from reticent.randomness import SECURE


def test_a_signal_handler_may_draw(race_counter):
    mechanism, values = KRR(epsilon=1.0, categories=4), np.ones(32_768, dtype=np.int64)
    drawn = []
    old = signal.signal(signal.SIGALRM, lambda *_: drawn.append(SECURE.words(4000)[0]))
    signal.setitimer(signal.ITIMER_REAL, 5e-4, 5e-4)

    def interrupt(number):
        symbols = mechanism.sample(values)
        assert symbols.min() >= 0
        assert symbols.max() < 4
        return len(drawn) > 3 and number >= 300

    try:
        race_counter.repeat_until_caught(interrupt, max_attempts=100_000, name="handler in a draw")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
