"""Crowdsourced training on a chain: programs for all who take part, plans, a demonstration."""

__all__: list[str] = []
