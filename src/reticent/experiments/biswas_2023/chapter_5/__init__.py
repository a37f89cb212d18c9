"""Biswas 2023, chapter 5: personalised training, its leakage and its fairness."""

__all__: list[str] = []
