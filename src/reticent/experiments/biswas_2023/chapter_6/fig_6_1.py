"""Fig. 6.1 of the thesis: see `recovery`."""

from reticent.experiments.biswas_2023.chapter_6.recovery import toy as run

__all__ = ["run"]
