"""Planted bugs: mechanisms that are wrong on purpose, so that every check is seen to fail.

Each bug is a small class; `PLANTS` maps its name to the check that is meant to catch it and to the
right mechanism that must pass the same check. Several are bugs that libraries shipped or that the documents
print. None of this may be used to protect anybody.
"""

from reticent.audit.planted.registry import PLANTS, Plant

__all__ = ["PLANTS", "Plant"]
