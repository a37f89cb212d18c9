"""Flower: a client mod that lets nothing but private reports out of anyone's app, and the strategy for it.

The rules of privacy are those of `client` and `server`; here they only travel in Flower's messages. Nothing
else of `federated` imports Flower.

A SuperNode runs the app that it is sent: the mod protects against a server that reads, not against one that
sends another app. Let SuperNodes take signed apps only (`--trusted-entities`).
"""

from reticent.federated.flower.clients import (
    of_node,
    of_simulation,
    personal_of_node,
    personal_of_simulation,
)
from reticent.federated.flower.mod import PrivateMod, private_mod
from reticent.federated.flower.personalised import PersonalMod, PersonalStrategy, personal_mod
from reticent.federated.flower.robust import RobustKrum, RobustRound
from reticent.federated.flower.strategy import PrivateFedSGD, Summary

__all__ = [
    "PersonalMod",
    "PersonalStrategy",
    "PrivateFedSGD",
    "PrivateMod",
    "RobustKrum",
    "RobustRound",
    "Summary",
    "of_node",
    "of_simulation",
    "personal_mod",
    "personal_of_node",
    "personal_of_simulation",
    "private_mod",
]
