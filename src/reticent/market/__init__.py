"""The market: truthful prices for privacy, and fair splits of what is earned.

`offers` and `clearing` are a buyer's, `menus` is what she publishes and how a seller picks of it,
`federations` and `shapley` are of sellers who deal together. None of these sees data. `bills` is a menu as a
signed text, `seller` the device that sells.
"""

from reticent.market.clearing import clearing_c, halves
from reticent.market.federations import (
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
from reticent.market.menus import Choice, Level, Menu, best_levels
from reticent.market.offers import Linear, Log, Offer, Steps
from reticent.market.shapley import sampled_values, threshold_values

__all__ = [
    "Choice",
    "Level",
    "Linear",
    "Log",
    "Menu",
    "Offer",
    "Steps",
    "Tabled",
    "Valuation",
    "best_levels",
    "catalysed",
    "clearing_c",
    "contribution",
    "deal_share",
    "earnings",
    "free_riders",
    "halves",
    "in_units",
    "pooled_level",
    "quota_of",
    "sampled_values",
    "saving",
    "threshold_values",
]
