"""Fig. 6.2 of the thesis: see `recovery`."""

from reticent.experiments.biswas_2023.chapter_6.recovery import deep as run

__all__ = ["run"]
