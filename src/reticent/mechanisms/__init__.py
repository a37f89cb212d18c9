"""Mechanisms: what turns private data into something safe to publish.

`numeric` and `categorical` hold the local mechanisms for one number and one category, `record` puts
several attributes into one report, `vector`, `gaussian` and `geometric` are noise for vectors and
central answers. `base` says what all of them are.
"""

from reticent.mechanisms.base import Channel, Randomiser

__all__ = ["Channel", "Randomiser"]
