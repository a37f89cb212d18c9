"""The experiments by name. Their modules are imported when they run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from reticent.errors import ParameterError
from reticent.experiments.base import Options, Outcome, Written, require_plotting, write


@dataclass(frozen=True)
class Experiment:
    """One figure or table of a document, redone.

    Attributes:
        name: what `reticent reproduce` calls it.
        title: one line.
        module: the module of this package that holds `run`.
        needs_data: whether it reads the data sets.
    """

    name: str
    title: str
    module: str
    needs_data: bool = False

    def run(self, options: Options) -> tuple[Outcome, Written]:
        """Run it and write its files."""
        require_plotting()
        found: Callable[[Options], Outcome] = import_module(f"reticent.experiments.{self.module}").run
        outcome = found(options)
        return outcome, write(self.name, outcome, options.out)


EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment("fig-3.2", "worst-case variance of every mechanism over epsilon", "fig_3_2"),
        Experiment("fig-3.3", "the best P(0|0) of Three-Outputs, and what two bits can do", "fig_3_3"),
        Experiment("fig-3.5", "PM-OPT against PM-SUB", "fig_3_5"),
        Experiment("table-3.1", "which mechanism has less variance where: the crossings", "table_3_1"),
        Experiment("fig-3.6", "error of means on four real data sets", "fig_3_6", needs_data=True),
        Experiment("fig-3.7", "error of means on synthetic data, four means", "fig_3_7"),
        Experiment("fig-3.11", "continuous against discretised to 2001 outputs", "fig_3_11", needs_data=True),
        Experiment("levels", "discretisation from 3 to 2001 outputs", "levels", needs_data=True),
        Experiment("table-4.2", "thirteen requests of three types: case and cost of each", "table_4_2"),
        Experiment("fig-4.5", "the cost of 150 queries with and without reuse of noise", "fig_4_5"),
        Experiment("fig-4.6", "relative errors with and without reuse of noise", "fig_4_6", needs_data=True),
        Experiment("fig-4.7", "utility and noise against the privacy budget (also Fig. 4.8)", "fig_4_7"),
        Experiment("reuse-rules", "reuse against DProvDB's rule", "reuse_rules"),
        Experiment(
            "chain-reuse", "150 queries on a contract, with and without reuse of noise", "chain_reuse"
        ),
        Experiment("chain-latency", "seconds to an answer on a chain, by analysts at once", "chain_latency"),
        Experiment("chain-cpu", "CPU of queries with and without a chain", "chain_cpu"),
        Experiment("chain-gas", "gas of every operation of the contracts", "chain_gas"),
        Experiment("service-latency", "seconds to an answer of the service, by queries", "service_latency"),
        Experiment("service-cpu", "CPU of queries with and without a ledger", "service_cpu"),
        Experiment(
            "collect-mse", "four million people answer a survey: error and bytes by mechanism", "collect_mse"
        ),
        Experiment(
            "collect-pipeline",
            "reports through bytes and a collector, against the library",
            "collect_pipeline",
            needs_data=True,
        ),
    )
}
"""Every experiment, in the order of the documents."""


def find(name: str) -> Experiment:
    """Return the experiment called `name`, or raise with the names there are."""
    try:
        return EXPERIMENTS[name]
    except KeyError:
        raise ParameterError(f"name must be one of {', '.join(EXPERIMENTS)}, got {name!r}") from None
