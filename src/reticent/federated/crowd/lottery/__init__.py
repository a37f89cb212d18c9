"""Seats of a committee by lot that anybody can check: ECVRF of RFC 9381 and the corrected sortition.

`vrf` has proofs and their outputs for any group; `weierstrass` and `edwards` are the groups, `suites` puts
the three together that are used; `seats` turns an output and a stake into seats.
"""

from reticent.federated.crowd.lottery.seats import priority, seats, seats_exactly
from reticent.federated.crowd.lottery.suites import edwards25519, p256, secp256k1
from reticent.federated.crowd.lottery.vrf import Vrf

__all__ = ["Vrf", "edwards25519", "p256", "priority", "seats", "seats_exactly", "secp256k1"]
