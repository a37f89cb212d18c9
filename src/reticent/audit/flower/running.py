"""A ClientApp in this process: a message, a node, and the reply as a SuperNode would send it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.supercore.task_identity import TaskIdentity

from reticent.audit.leakage.sources import Arrays
from reticent.federated.flower import mod

_NODE, _RUN, _TASK = 7, 1, 1
App = Callable[[Message, Context], Message]


@dataclass(frozen=True)
class Node:
    """A node that holds one of the data sets.

    Attributes:
        node_config: Configuration of the node; the same for all data sets, or any difference is found.
        run_config: Configuration of the run.
        config: Values that the server sends beside the parameters.
        records: Invented records, shape (records, inputs), to compare with those that are rebuilt.
    """

    node_config: Mapping[str, Any] = field(default_factory=dict)
    run_config: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    records: Any = None


DataSet = Callable[[], Node | None]  # puts a data set where the app reads it


def answered(app: App, node: Node, arrays: Arrays, kind: str) -> tuple[Message, float]:
    """Run an app on one message; return its reply, errors as Flower sends them, and the message's expiry."""
    content = RecordDict(
        {
            "arrays": ArrayRecord({name: Array(np.array(array)) for name, array in arrays.items()}),
            "config": ConfigRecord({"server-round": 1, **node.config}),
        }
    )
    context = Context(
        run_id=_RUN,
        node_id=_NODE,
        node_config=dict(node.node_config),
        state=RecordDict(),
        run_config=dict(node.run_config),
    )
    with _identity():
        message = Message(content, _NODE, kind, group_id="1")
        message.metadata.__dict__["_message_id"] = "the question"
        until = message.metadata.created_at + message.metadata.ttl
        try:
            reply = app(deepcopy(message), context)
            if not isinstance(reply, Message):
                raise TypeError(f"a reply must be a Message, got {type(reply).__name__}")
        except Exception as error:
            told = f"{type(error)}:<'{error}'>"  # as a SuperNode words it
            return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, told), reply_to=message), until
        except SystemExit:  # nothing is sent then, and that shows
            return Message(Error(ErrorCode.UNKNOWN, "the process of the app ended"), reply_to=message), until
    return reply, until


class _Heard(logging.Handler):
    """A log handler that keeps why apps failed behind the mod, which reports no change and goes on."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.failures: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            self.failures.append(f"{type(error).__name__}: {error}")


@contextmanager
def failures_heard() -> Iterator[list[str]]:
    """Collect why apps fail behind the mod while the block runs; no other log handler hears of it."""
    log, heard = logging.getLogger(mod.__name__), _Heard()
    before = log.level, log.propagate
    log.addHandler(heard)
    log.setLevel(logging.DEBUG)
    log.propagate = False
    try:
        yield heard.failures
    finally:
        log.removeHandler(heard)
        log.setLevel(before[0])
        log.propagate = before[1]


@contextmanager
def _identity() -> Iterator[None]:
    """Set the process identity that Flower's messages ask for, and restore it afterwards."""
    before = TaskIdentity._task_id, TaskIdentity._run_id, TaskIdentity._node_id
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = _TASK, _RUN, _NODE
    try:
        yield
    finally:
        TaskIdentity._task_id, TaskIdentity._run_id, TaskIdentity._node_id = before
