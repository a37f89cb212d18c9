"""The server: the strategy, a look at public records after each round, and the model in a file."""

import json
from dataclasses import asdict
from pathlib import Path

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from private_example.data import MODEL, holdout
from reticent.federated import saved
from reticent.federated.flower import PrivateFedSGD, Summary
from reticent.fleet.operator import Operator

app = ServerApp()


def look(_number: int, arrays: ArrayRecord) -> MetricRecord:
    """The share of public records that the model gets wrong."""
    (theta,) = arrays.to_numpy_ndarrays()
    return MetricRecord({"error": MODEL.error(theta, *holdout())})


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train what is left of the task, and keep the model with what it promises."""
    folder, config = Path(context.run_config["folder"]), context.run_config

    def note(summary: Summary) -> None:
        with (folder / "rounds.jsonl").open("a") as file:
            file.write(json.dumps(asdict(summary)) + "\n")

    with Operator.at(folder / "enrolment.key") as operator:  # each round is entered in its ledger first
        strategy = PrivateFedSGD(
            (folder / "task.json").read_bytes(),
            operator,
            patience_s=config["patience-s"],
            checkpoint=folder / "run.npz",
            resume=True,
            on_round=note,
        )
        strategy.start(
            grid,
            strategy.initial_arrays(),
            num_rounds=strategy.rounds_left,
            timeout=config["timeout-s"],
            evaluate_fn=look,
        )
    statement = saved.Statement(strategy.task, strategy.training.number, saved.How.CLIENTS)
    saved.save(folder / "model.safetensors", strategy.training.theta, statement)
