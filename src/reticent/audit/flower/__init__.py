"""Anybody's Flower app, run in process on neighbouring data sets that are invented: what leaves of them?

* `running`: the app, a message and a node, without Flower's processes; what it raises is sent as Flower does.
* `replies`: everything that a server sees of a reply, part by part.
* `judging`: parts that tell the data sets apart, and arrays inverted into records.

Nothing of a reply is unpickled. How long an app takes is not looked at, and leaves too.
"""

from reticent.audit.flower.judging import FlowerAudit, Told, audit_flower
from reticent.audit.flower.running import Node

__all__ = ["FlowerAudit", "Node", "Told", "audit_flower"]
