"""Crowdsourced training on a chain: what a task will cost and risk."""

__all__: list[str] = []
