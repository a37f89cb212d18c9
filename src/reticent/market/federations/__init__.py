"""Federations: sellers who deal together, by texts that they sign, and whose sums anybody redoes.

`formulas` is the arithmetic: what members contribute, what a deal pays, who earns what, who rode free.
`purchases` are the texts of a buyer: what she wants, whom she takes at which share, what arrived. `acts` are
those of a federation, a chain in which each names the one before: founding, joining, votes, bids, deals,
rounds, settlements. `federation` goes through a chain and refuses whatever breaks a rule or does not add up;
`deals` works out what a deal's texts must say. `folder` keeps a chain in files, `words` says it to people.

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
