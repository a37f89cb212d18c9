"""Biswas 2023: the figures and tables of the thesis, by chapter."""
