"""Whole paths, not mechanisms: from a private value to the bytes that leave, from a table to the answer told.

* `messages`: what devices and clients send (`senders`), over several rounds and repetitions.
* `attribute_sampling`: which attributes of a record are reported, and what they say.
* `queries`: what the query engine answers about invented tables.

A fault of the wire, the memory, the ledger or the session shows here and in no audit of a mechanism.
"""

__all__: list[str] = []
