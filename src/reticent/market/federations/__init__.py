"""Federations of sellers who deal together by signed texts, whose sums anybody can redo.

`formulas` holds the arithmetic: contributions of members, the price of a deal, earnings and free riders.
`purchases` holds the signed texts of a buyer: request, award and delivery. `acts` holds the signed acts of a
federation, a hash chain of foundings, joins, votes, bids, deals, rounds and settlements. `federation` replays
a chain and refuses every act that breaks a rule or does not add up. `deals` computes what the texts of a deal
must say. `folder` keeps a chain in files, and `words` describes a federation to people.

No act moves data or spends a privacy budget: reports are drawn and paid for by each member's own device.
"""

from reticent.market.federations.formulas import (
    Tabled,
    Valuation,
    catalysed,
    contribution,
    deal_share,
    earnings,
    free_riders,
    in_units,
    pooled_level,
    quota_of,
    saving,
)

__all__ = [
    "Tabled",
    "Valuation",
    "catalysed",
    "contribution",
    "deal_share",
    "earnings",
    "free_riders",
    "in_units",
    "pooled_level",
    "quota_of",
    "saving",
]
