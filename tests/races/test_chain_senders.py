"""Two senders with the same key that send at once."""

import threading

from reticent.chain.sender import Sender

from ..unit.chain.conftest import own_anvil
from ..unit.chain.sent import TO, chain, mined

__all__ = ["chain", "own_anvil"]  # fixtures


def test_rivals_at_once(chain):
    senders = [Sender(chain, chain.keys[0], timeout_s=120) for _ in range(2)]
    failures = []

    def work(sender, name):
        try:
            for i in range(10):
                assert sender.transact(TO, b"%s %d" % (name, i), gas=50_000).succeeded
        except Exception as error:
            failures.append(error)

    threads = [
        threading.Thread(target=work, args=pair) for pair in zip(senders, (b"left", b"right"), strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    sent = mined(chain, senders[0].address)
    assert [nonce for nonce, _ in sent] == list(range(20))
    assert len({data for _, data in sent}) == 20
