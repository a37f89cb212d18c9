"""A lock file on which processes queue: fair, without polling, and with a time limit.

The operating system's queue (`flock`) wakes a waiting process as soon as the lock is free, and frees the lock
when its holder dies, but has no time limit: a stopped process would stop all others with it. So a caller that
does not get the lock at once lets a thread queue for it, and waits for the thread.

Nothing can take such a thread out of the queue: if the caller gives up, the thread still takes its turn, and
passes the lock on at once. So a caller that does not wait at all starts no thread.
"""

from __future__ import annotations

import contextlib
import os
import threading

try:
    import fcntl

    _AT_ONCE = fcntl.LOCK_EX | fcntl.LOCK_NB
except ImportError:  # not on this platform: the lock is always free
    fcntl = None  # type: ignore[assignment]


class LockFile:
    """A lock at a path, to be taken by one thread of this process at a time.

    Args:
        path: Path of the lock file; created if there is none.
    """

    def __init__(self, path: str) -> None:
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._wanted = False  # a caller waits
        self._queueing = False  # the thread queues, perhaps for a caller that gave up
        self._granted = False  # the thread has the lock, for the caller that waits
        self._closed = False

    def acquire(self, timeout_s: float) -> bool:
        """Take the lock, or return False after the timeout. With a timeout of 0, no thread queues."""
        if fcntl is None or self._closed:
            return True
        if not self._queueing:
            try:
                fcntl.flock(self.file, _AT_ONCE)
                return True
            except BlockingIOError:
                pass  # another process has the lock: queue
        if timeout_s <= 0.0:
            return False
        with self._changed:
            self._wanted = self._queueing = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._queue, name="lock file", daemon=True)
                self._thread.start()
            self._changed.notify_all()
            try:
                return self._changed.wait_for(lambda: self._granted, timeout_s)
            except BaseException:
                if self._granted:
                    self.release()
                raise
            finally:
                self._wanted = self._granted = False

    def _queue(self) -> None:
        """Take the lock for the callers that wait, until the file is closed."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or (self._queueing and not self._granted))
                if self._closed:
                    if self._queueing:  # `close` left the file to this thread
                        os.close(self.file)
                    return
            with contextlib.suppress(OSError):  # for the order only; SQLite decides which process may write
                fcntl.flock(self.file, fcntl.LOCK_EX)
            with self._changed:
                if self._closed:
                    os.close(self.file)
                    return
                if self._wanted:
                    self._granted = True
                    self._changed.notify_all()
                else:
                    self.release()
                self._queueing = False  # only now: a lock taken at once must not be released here

    def release(self) -> None:
        """Release the lock to the next process in the queue."""
        if fcntl is not None and not self._closed:
            fcntl.flock(self.file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file; if the thread still queues, it closes the file later."""
        with self._changed:
            if not self._closed and not self._queueing:
                os.close(self.file)
            self._closed = True
            self._changed.notify_all()

    def let_go(self) -> None:
        """Close the parent's file in a forked child, without taking a lock that the fork may have copied."""
        if not self._closed:
            self._closed = True
            os.close(self.file)
