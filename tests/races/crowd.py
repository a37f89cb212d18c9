"""A crowd of bad clients, in a process of its own: `python crowd.py PORT COUNTS` until its input ends.

COUNTS says in JSON how many there are of each kind, how many seconds the slow ones pause between bytes, and
how many bytes all may send. Whoever is cut off comes again. A line is printed once some of every kind were
cut off, and at the end the connections, those that were cut off, and the bytes by kind.
"""

import asyncio
import contextlib
import json
import os
import random
import sys
import threading
from collections import Counter

AGAIN_S = 0.1
BLOCK = b" " * (1 << 16)
CHUNK = b"10000\r\n" + BLOCK + b"\r\n"
POST = b"POST /api/v1/datasets/census/price HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
SLOW = {  # what is sent at once, and then again and again
    "silent": (b"", b""),
    "slow head": (b"GET /health HTTP/1.1\r\nHost: x\r\nX-A: ", b"x"),
    "slow body": (POST + b"Content-Length: 1000\r\n\r\n", b" "),
}
FAST = {
    "declared": (POST + b"Content-Length: 10000000000\r\n\r\n", BLOCK),
    "chunked": (POST + b"Transfer-Encoding: chunked\r\n\r\n", CHUNK),
}


class Crowd:
    def __init__(self, port, pause_s, most_bytes, kinds):
        self.uncut = set(kinds)
        self.port, self.pause_s, self.left = port, pause_s, most_bytes
        self.opened, self.cut, self.sent = Counter(), Counter(), Counter()

    async def one(self, kind):
        """Come, be cut off, come again."""
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                self.opened[kind] += 1
                sending = asyncio.create_task(self.send(kind, writer))
                try:
                    while await reader.read(1 << 16):
                        pass
                except OSError:
                    pass
                finally:
                    sending.cancel()
                    writer.transport.abort()
                self.cut[kind] += 1
                if self.uncut == {kind}:
                    print("all were cut", flush=True)
                self.uncut.discard(kind)
            await asyncio.sleep(AGAIN_S)

    async def send(self, kind, writer):
        first, again = (SLOW | FAST)[kind]
        writer.write(first)
        with contextlib.suppress(OSError):
            while not writer.is_closing():
                if kind in SLOW:
                    await asyncio.sleep(random.uniform(0, 2 * self.pause_s))
                if self.left > 0:
                    writer.write(again)
                    self.left -= len(again)
                    self.sent[kind] += len(again)
                if kind in FAST:
                    await writer.drain()
                    await asyncio.sleep(0 if self.left > 0 else self.pause_s)


async def main():
    counts = json.loads(sys.argv[2])
    crowd = Crowd(int(sys.argv[1]), counts.pop("pause_s"), counts.pop("bytes"), counts)
    end, loop = asyncio.Event(), asyncio.get_running_loop()

    def wait():
        sys.stdin.read()
        loop.call_soon_threadsafe(end.set)

    threading.Thread(target=wait, daemon=True).start()
    tasks = [asyncio.create_task(crowd.one(kind)) for kind, count in counts.items() for _ in range(count)]
    await end.wait()
    print(json.dumps({"opened": crowd.opened, "cut": crowd.cut, "sent": crowd.sent}), flush=True)
    for task in tasks:
        task.cancel()
    os._exit(0)


if __name__ == "__main__":
    os.nice(10)  # so that the crowd's own work does not stand in for the service's
    asyncio.run(main())
