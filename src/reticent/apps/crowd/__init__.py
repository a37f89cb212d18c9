"""Crowdsourced training on a chain: programs for those who take part, what a task costs and risks, a demonstration."""

__all__: list[str] = []
