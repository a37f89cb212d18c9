"""A Flower client mod: whatever the app inside returns, one private report leaves, and nothing else.

    app = ClientApp(mods=[private_mod])

It must be the first of the app's mods, so that no other sees the reply after it. Parameters, losses, numbers
of examples and the texts of errors stay on the node. The message that leaves is made before the app runs,
and the app gets a copy of what came: nothing of it but the report's bytes can depend on the data.

Whether a report leaves depends on public things only: an app that raises, returns nothing or returns other
shapes reports that nothing changed. What nobody can hide from inside a process: how long the app took, and
that it brought the whole process down.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Error, Message, MessageType, RecordDict
from flwr.common.constant import ErrorCode

from reticent.arguments import real
from reticent.errors import BudgetExceeded, GuaranteeError, ParameterError
from reticent.federated.client import Client, ParticipationsSpent
from reticent.federated.flower import records
from reticent.federated.flower.clients import of_node
from reticent.federated.tasks import Task
from reticent.mechanisms.base import Floats

App = Callable[[Message, Context], Message]
RETURNS = ("parameters", "gradient")
_LOG = logging.getLogger(__name__)


class Refusal(Enum):
    """Why a client sends no report. These words are all that is told."""

    KIND = "this client answers training only"
    TASK = "this client does not take the task"
    BUDGET = "the lifetime budget does not hold another report"
    PARTICIPATIONS = "the task allows no further round of this client"
    SET_UP = "this client is not set up"


class ReportMod(ABC):
    """The common part of mods; each family of tasks has its own subclass, which trains it.

    Args:
        client: the node's client; opened for each message and closed again.
        public_holdout: True if the app evaluates on public data only, so that its answers may leave.
    """

    def __init__(self, client: Callable[[Context], Any], *, public_holdout: bool = False) -> None:
        self._client, self._is_public = client, bool(public_holdout)

    def __call__(self, message: Message, context: Context, call_next: App) -> Message:
        """Answer a message with a report, or refuse on public grounds."""
        reply = Message(RecordDict(), reply_to=message)
        kind = message.metadata.message_type.partition(".")[0]
        if kind == MessageType.EVALUATE and self._is_public:
            return call_next(message, context)
        if kind != MessageType.TRAIN:
            return _refused(message, Refusal.KIND)
        try:
            client = self._client(context)
        except Exception:  # a path or a number of the node's own: it stays here
            _LOG.warning("the client of this node cannot be opened", exc_info=True)
            return _refused(message, Refusal.SET_UP)
        with client:
            try:
                asked = self._asked(client, message.content)
            except Exception:  # the server's doing
                return _refused(message, Refusal.TASK)
            found = self._trained(lambda: call_next(deepcopy(message), context).content, asked)
            try:
                with np.errstate(all="ignore"):
                    reply.content = records.answer(self._report(client, asked, found))
            except BudgetExceeded:
                return _refused(message, Refusal.BUDGET)
            except ParticipationsSpent:
                return _refused(message, Refusal.PARTICIPATIONS)
            except GuaranteeError:
                return _refused(message, Refusal.TASK)
            except Exception:  # the node's own, as above
                _LOG.warning("the ledger of this node cannot be used", exc_info=True)
                return _refused(message, Refusal.SET_UP)
        return reply

    def _trained(self, app: Callable[[], RecordDict], asked: Any) -> Any:
        """Return the app's result, or that of no change if the app failed: a total function of its data."""
        try:
            answer = app()
            with np.errstate(all="ignore"):
                return self._found(answer, asked)
        except (Exception, SystemExit) as error:
            _LOG.warning("the app failed (%s): no change is reported", type(error).__name__)
            _LOG.debug("the app failed", exc_info=True)
            return self._nothing(asked)

    @abstractmethod
    def _asked(self, client: Any, content: RecordDict) -> Any:
        """Return the server's request, which is public; if this raises anything, the task is refused."""

    @abstractmethod
    def _found(self, answer: RecordDict, asked: Any) -> Any:
        """Return the meaning of the app's answer; if this raises anything, the answer means nothing."""

    @abstractmethod
    def _nothing(self, asked: Any) -> Any:
        """Return the result to report for an app that failed."""

    @abstractmethod
    def _report(self, client: Any, asked: Any, found: Any) -> bytes:
        """The report of what was found: the only use that is made of it."""


class PrivateMod(ReportMod):
    """LDP-FedSGD. `private_mod` is the one for SuperNodes whose app returns updated parameters.

    Args:
        client: the node's client; opened for each message and closed again.
        returns: "parameters", and the gradient is (received - returned) / local_rate; or "gradient".
        local_rate: Rate by which the app steps on its data; public.
        public_holdout: True if the app evaluates on public data only, so that its answers may leave.
    """

    def __init__(
        self,
        client: Callable[[Context], Client] = of_node,
        *,
        returns: str = "parameters",
        local_rate: float = 1.0,
        public_holdout: bool = False,
    ) -> None:
        super().__init__(client, public_holdout=public_holdout)
        if returns not in RETURNS:
            raise ParameterError(f"returns must be one of {', '.join(RETURNS)}, got {returns!r:.60}")
        self._is_gradient = returns == "gradient"
        self._rate = real("local_rate", local_rate, low=0.0, open_low=True)

    def _asked(self, client: Client, content: RecordDict) -> _Asked:
        file, number, received = records.asked(content)
        task = client.take(file)
        theta = records.flat(received, task.dimensions)
        return _Asked(task, task.checked_round(number), received, theta)

    def _found(self, answer: RecordDict, asked: _Asked) -> Floats:
        returned = records.alike(answer, records.shapes(asked.received))
        found = records.flat(returned, asked.theta.size, asked.received)
        return found if self._is_gradient else np.asarray((asked.theta - found) / self._rate)

    def _nothing(self, asked: _Asked) -> Floats:
        return np.zeros_like(asked.theta)

    def _report(self, client: Client, asked: _Asked, found: Floats) -> bytes:
        return client.report(asked.task, asked.number, found)


@dataclass(frozen=True)
class _Asked:
    """A round of a task, and the parameters as they came and flat."""

    task: Task
    number: int
    received: ArrayRecord
    theta: Floats


def _refused(message: Message, why: Refusal) -> Message:
    return Message(Error(ErrorCode.MOD_FAILED_PRECONDITION, records.REFUSED + why.value), reply_to=message)


private_mod = PrivateMod()
