"""The experiments by name. Their modules are imported when they run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from reticent.errors import ParameterError
from reticent.experiments.base import Options, Outcome, Written, require_plotting, write
from reticent.experiments.stored import TOLERANCE

SEARCH_TOLERANCE = 0.1  # hundreds of steps in single precision: other processors round otherwise
GAS_TOLERANCE = 2e-3  # a transaction's zero bytes cost less, and keys and signatures are drawn


@dataclass(frozen=True)
class Experiment:
    """One figure or table of a document, redone.

    Attributes:
        name: what `reticent reproduce` calls it.
        title: one line.
        module: the module of this package that holds `run`.
        needs_data: whether it reads the data sets.
        measures_time: whether its numbers are those of a machine, and no run is kept.
        shows_data: whether its rows hold what a data set holds, so that a summary of them is kept.
        tolerance: how far, in proportion, the same run may be from itself.
    """

    name: str
    title: str
    module: str
    needs_data: bool = False
    measures_time: bool = False
    shows_data: bool = False
    tolerance: float = TOLERANCE

    def run(self, options: Options) -> tuple[Outcome, Written]:
        """Run it and write its files."""
        require_plotting()
        found: Callable[[Options], Outcome] = import_module(f"reticent.experiments.{self.module}").run
        outcome = found(options)
        return outcome, write(self.name, outcome, options.out)


EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            "fig-3.2", "worst-case variance of every mechanism over epsilon", "zhao_2022.chapter_3.fig_3_2"
        ),
        Experiment(
            "fig-3.3",
            "the best P(0|0) of Three-Outputs, and what two bits can do",
            "zhao_2022.chapter_3.fig_3_3",
        ),
        Experiment("fig-3.5", "PM-OPT against PM-SUB", "zhao_2022.chapter_3.fig_3_5"),
        Experiment(
            "table-3.1",
            "which mechanism has less variance where: the crossings",
            "zhao_2022.chapter_3.table_3_1",
        ),
        Experiment(
            "fig-3.6", "error of means on four real data sets", "zhao_2022.chapter_3.fig_3_6", needs_data=True
        ),
        Experiment("fig-3.7", "error of means on synthetic data, four means", "zhao_2022.chapter_3.fig_3_7"),
        Experiment(
            "fig-3.8", "logistic regression by eleven methods", "zhao_2022.chapter_3.fig_3_8", needs_data=True
        ),
        Experiment(
            "fig-3.9", "linear regression by eleven methods", "zhao_2022.chapter_3.fig_3_9", needs_data=True
        ),
        Experiment(
            "fig-3.10",
            "support vector machines by eleven methods",
            "zhao_2022.chapter_3.fig_3_10",
            needs_data=True,
        ),
        Experiment(
            "fig-3.11",
            "continuous against discretised to 2001 outputs",
            "zhao_2022.chapter_3.fig_3_11",
            needs_data=True,
        ),
        Experiment(
            "fig-3.12", "linear regression with 2001 outputs", "zhao_2022.chapter_3.fig_3_12", needs_data=True
        ),
        Experiment(
            "fig-3.13",
            "logistic regression with 2001 outputs",
            "zhao_2022.chapter_3.fig_3_13",
            needs_data=True,
        ),
        Experiment(
            "fig-3.14",
            "regressions over the number of outputs",
            "zhao_2022.chapter_3.fig_3_14",
            needs_data=True,
        ),
        Experiment(
            "fig-3.15",
            "support vector machines over the number of outputs",
            "zhao_2022.chapter_3.fig_3_15",
            needs_data=True,
        ),
        Experiment("levels", "discretisation from 3 to 2001 outputs", "ours.levels", needs_data=True),
        Experiment(
            "table-4.2",
            "thirteen requests of three types: case and cost of each",
            "zhao_2022.chapter_4.table_4_2",
        ),
        Experiment(
            "fig-4.5",
            "the cost of 150 queries with and without reuse of noise",
            "zhao_2022.chapter_4.fig_4_5",
        ),
        Experiment(
            "fig-4.6",
            "relative errors with and without reuse of noise",
            "zhao_2022.chapter_4.fig_4_6",
            needs_data=True,
        ),
        Experiment(
            "fig-4.7",
            "utility and noise against the privacy budget (also Fig. 4.8)",
            "zhao_2022.chapter_4.fig_4_7",
        ),
        Experiment("reuse-rules", "reuse against DProvDB's rule", "ours.reuse_rules"),
        Experiment("span", "reuse of everything in the span of what was bought", "ours.span"),
        Experiment(
            "chain-reuse",
            "150 queries on a contract, with and without reuse of noise",
            "zhao_2022.chapter_4.chain_reuse",
            tolerance=GAS_TOLERANCE,
        ),
        Experiment(
            "chain-latency",
            "seconds to an answer on a chain, by analysts at once",
            "zhao_2022.chapter_4.chain_latency",
            measures_time=True,
        ),
        Experiment(
            "chain-cpu",
            "CPU of queries with and without a chain",
            "zhao_2022.chapter_4.chain_cpu",
            measures_time=True,
        ),
        Experiment(
            "chain-gas",
            "gas of every operation of the contracts",
            "zhao_2022.chapter_4.chain_gas",
            tolerance=GAS_TOLERANCE,
        ),
        Experiment(
            "service-latency",
            "seconds to an answer of the service, by queries",
            "zhao_2022.chapter_4.service_latency",
            measures_time=True,
        ),
        Experiment(
            "service-cpu",
            "CPU of queries with and without a ledger",
            "zhao_2022.chapter_4.service_cpu",
            measures_time=True,
        ),
        Experiment(
            "crowd-5.3",
            "the documents' split: accuracy by normalisation and epsilon",
            "zhao_2022.chapter_5.fig_5_3",
            needs_data=True,
            tolerance=SEARCH_TOLERANCE,
        ),
        Experiment(
            "crowd-5.4",
            "the documents' split: batch sizes under noise",
            "zhao_2022.chapter_5.fig_5_4",
            needs_data=True,
            tolerance=SEARCH_TOLERANCE,
        ),
        Experiment(
            "crowd-5.5",
            "the documents' split: batch sizes without noise",
            "zhao_2022.chapter_5.fig_5_5",
            needs_data=True,
            tolerance=SEARCH_TOLERANCE,
        ),
        Experiment(
            "crowd-5.6",
            "the documents' split: global epochs by batch size",
            "zhao_2022.chapter_5.fig_5_6",
            needs_data=True,
            tolerance=SEARCH_TOLERANCE,
        ),
        Experiment(
            "crowd-5.7",
            "the documents' split: epsilon by global epochs, and what a record gives away",
            "zhao_2022.chapter_5.fig_5_7",
            needs_data=True,
            tolerance=SEARCH_TOLERANCE,
        ),
        Experiment(
            "crowd-5.8",
            "the documents' split: local epochs by global epochs",
            "zhao_2022.chapter_5.fig_5_8",
            needs_data=True,
            tolerance=SEARCH_TOLERANCE,
        ),
        Experiment(
            "crowd-device",
            "seconds on phone and edge and bytes between, by way of training",
            "zhao_2022.chapter_5.device",
            measures_time=True,
        ),
        Experiment(
            "crowd-5.10", "rewards of an honest and of a malicious customer", "zhao_2022.chapter_5.fig_5_10"
        ),
        Experiment(
            "crowd-5.11",
            "reputations of an honest and of a malicious customer",
            "zhao_2022.chapter_5.fig_5_11",
        ),
        Experiment(
            "crowd-decoder",
            "pictures rebuilt from what an edge is sent, by split",
            "zhao_2022.chapter_5.decoder",
            needs_data=True,
            tolerance=SEARCH_TOLERANCE,
        ),
        Experiment(
            "crowd-robust",
            "what liars leave of a model, by attack, defence and share",
            "zhao_2022.chapter_5.robust",
            needs_data=True,
        ),
        Experiment(
            "collect-mse",
            "four million people answer a survey: error and bytes by mechanism",
            "ours.collect_mse",
        ),
        Experiment(
            "sharper-training",
            "Figs. 3.8 to 3.10 again, with tailored coordinates and codebooks",
            "ours.sharper_training",
            needs_data=True,
        ),
        Experiment(
            "sharper-networks",
            "a network learns digits from one report of each client: a codebook against coordinates",
            "ours.sharper_networks",
            needs_data=True,
        ),
        Experiment(
            "learning-means",
            "a tenth of the people shape the mechanisms of the rest: the means of Figs 3.6 and 3.7",
            "ours.learning_means",
            needs_data=True,
        ),
        Experiment(
            "collect-pipeline",
            "reports through bytes and a collector, against the library",
            "ours.collect_pipeline",
            needs_data=True,
        ),
        Experiment(
            "deployment",
            "a hundred million devices and ten thousand analysts, by a model calibrated by measured parts",
            "ours.deployment",
        ),
        Experiment(
            "leakage-bounds",
            "how often attacks on updates succeed, and the bound that none can pass",
            "ours.leakage_bounds",
            needs_data=True,
            tolerance=SEARCH_TOLERANCE,
        ),
        Experiment(
            "fig-5.3", "two linear laws learnt by one hypothesis and by two", "biswas_2023.chapter_5.optima"
        ),
        Experiment(
            "fig-5.4", "the largest leakage of a client, claimed and true", "biswas_2023.chapter_5.leakage"
        ),
        Experiment(
            "fig-5.5",
            "what hospitals charge, by hypotheses and noise (also Fig. 5.6, Table 5.1)",
            "biswas_2023.chapter_5.hospital",
            needs_data=True,
        ),
        Experiment(
            "table-5.2",
            "digits of many writers, by noise, on a network",
            "biswas_2023.chapter_5.mnist",
            needs_data=True,
        ),
        Experiment(
            "fig-5.7",
            "digits rebuilt from noisy updates, by DLG and by better attacks",
            "biswas_2023.chapter_5.rebuilt",
            needs_data=True,
            tolerance=SEARCH_TOLERANCE,
        ),
        Experiment("fig-5.8", "the people of the fairness experiment", "biswas_2023.chapter_5.groups"),
        Experiment(
            "fig-5.9", "fairness gaps with one hypothesis and with two", "biswas_2023.chapter_5.fairness"
        ),
        Experiment(
            "fig-5.10",
            "fairness gaps between groups of writers",
            "biswas_2023.chapter_5.mnist_fairness",
            needs_data=True,
        ),
        Experiment(
            "fig-6.1", "batches that come back from an update of one layer", "biswas_2023.chapter_6.fig_6_1"
        ),
        Experiment(
            "fig-6.2", "records that come back, over layers and batches", "biswas_2023.chapter_6.fig_6_2"
        ),
        Experiment(
            "table-6.1",
            "the family that a batch of similar pictures leaves",
            "biswas_2023.chapter_6.table_6_1",
        ),
        Experiment("clones", "inputs that share an update, two labels", "biswas_2023.chapter_6.clones"),
        Experiment(
            "batch-diversity", "leakage over how different a batch is", "biswas_2023.chapter_6.diversity"
        ),
        Experiment(
            "loc-3.2",
            "reports of an isolated and of a crowded place",
            "biswas_2023.chapter_3.elastic",
            needs_data=True,
        ),
        Experiment(
            "loc-3.3", "places estimated under two channels", "biswas_2023.chapter_3.utility", needs_data=True
        ),
        Experiment(
            "loc-3.7",
            "where people are, as PRIVIC learns it",
            "biswas_2023.chapter_3.maps",
            needs_data=True,
            shows_data=True,
        ),
        Experiment(
            "loc-3.8", "PRIVIC in Paris by cycles (Table B.1)", "biswas_2023.chapter_3.paris", needs_data=True
        ),
        Experiment(
            "loc-3.9",
            "PRIVIC in San Francisco by cycles (Table B.2)",
            "biswas_2023.chapter_3.san_francisco",
            needs_data=True,
        ),
        Experiment("loc-3.10", "PRIVIC by loss parameter", "biswas_2023.chapter_3.levels", needs_data=True),
        Experiment(
            "loc-3.11",
            "liars among PRIVIC's people, and our defence",
            "biswas_2023.chapter_3.poison",
            needs_data=True,
        ),
        Experiment(
            "loc-4.2",
            "the true journey among dummies and companions",
            "biswas_2023.chapter_4.found",
            needs_data=True,
        ),
        Experiment(
            "loc-4.5",
            "how much farther cars drive, by epsilon and radius",
            "biswas_2023.chapter_4.costs",
            needs_data=True,
        ),
        Experiment(
            "loc-4.6",
            "queries that privacy costs nothing, by epsilon and radius",
            "biswas_2023.chapter_4.shares",
            needs_data=True,
        ),
        Experiment(
            "loc-4.7",
            "places found by Bayes' rule, with companions and with more noise",
            "biswas_2023.chapter_4.identified",
            needs_data=True,
        ),
        Experiment(
            "loc-4.8",
            "where people asked, by updates, with companions and without",
            "biswas_2023.chapter_4.updates",
            needs_data=True,
        ),
        Experiment(
            "loc-4.9",
            "maps of where people asked",
            "biswas_2023.chapter_4.maps",
            needs_data=True,
            shows_data=True,
        ),
        Experiment(
            "loc-updates",
            "how many updates PRIVIC's rounds take, by reports",
            "ours.location_updates",
            needs_data=True,
        ),
        Experiment(
            "loc-table-3.1",
            "seconds of a cycle of PRIVIC",
            "biswas_2023.chapter_3.times",
            needs_data=True,
            measures_time=True,
        ),
        Experiment(
            "market-7.1", "two sellers with and without the incentive", "biswas_2023.chapter_7.fig_7_1"
        ),
        Experiment("market-7.2", "what a buyer takes at which price", "biswas_2023.chapter_7.fig_7_2"),
        Experiment("market-7.3", "what a lie costs a seller, as an area", "biswas_2023.chapter_7.fig_7_3"),
        Experiment("market-7.4", "payoff and pay of one seller, by c", "biswas_2023.chapter_7.fig_7_4"),
        Experiment("market-7.5", "what a budget buys, by c", "biswas_2023.chapter_7.fig_7_5"),
        Experiment("market-split", "a seller's budget over several buyers", "biswas_2023.chapter_7.split"),
        Experiment("market-8.1", "the level that money buys", "biswas_2023.chapter_8.fig_8_1"),
        Experiment("market-8.2", "rounds until a federation has its goal", "biswas_2023.chapter_8.fig_8_2"),
        Experiment("market-8.3", "free riders by what is tolerated", "biswas_2023.chapter_8.fig_8_3"),
        Experiment("market-8.4.1", "who earned what of 60", "biswas_2023.chapter_8.example_8_4_1"),
        Experiment(
            "market-table-8.1",
            "seconds of Shapley values, to 1,000 members",
            "biswas_2023.chapter_8.table_8_1",
            measures_time=True,
        ),
    )
}
"""Every experiment, in the order of the documents."""


def find(name: str) -> Experiment:
    """Return the experiment called `name`, or raise with the names there are."""
    try:
        return EXPERIMENTS[name]
    except KeyError as error:
        raise ParameterError(f"name must be one of {', '.join(EXPERIMENTS)}, got {name!r}") from error
