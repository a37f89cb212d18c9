"""The in-process simulator against Flower's simulation on Ray, per client and round.

Flower's side is its own FedAvg with a client that computes one gradient: no privacy, no ledger, nothing of
ours. Our side draws private reports too. Both learn the same model from one record a client; wall time,
since Ray works in other processes, and without the start of either.
"""

from __future__ import annotations

import logging
import os
import time

os.environ |= {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}

import numpy as np

from benchmarks.measure import Figure
from reticent.federated import Logistic
from reticent.federated.simulation import simulate
from reticent.federated.tasks import designed

INPUTS, CLIENTS, ROUNDS = 99, 200, 4
OUR_CLIENTS = 100_000
MODEL = Logistic(INPUTS)


def ours() -> float:
    """Seconds a client and round."""
    task = designed(
        "bench", MODEL, epsilon=1.0, purpose="a benchmark", rounds=ROUNDS, group=OUR_CLIENTS, rate=1.0,
        participations=ROUNDS,
    )  # fmt: skip
    draw = np.random.default_rng(0)
    features = draw.uniform(-1.0, 1.0, (OUR_CLIENTS, INPUTS))
    targets = draw.choice([-1.0, 1.0], OUR_CLIENTS)
    times: list[float] = []
    simulate(task, features, targets, on_round=lambda *_: times.append(time.perf_counter()))
    return (times[-1] - times[0]) / (ROUNDS - 1) / OUR_CLIENTS


def flowers() -> float:
    """Seconds a client and round."""
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    logging.getLogger("flwr").setLevel(logging.ERROR)
    client, server = ClientApp(), ServerApp()
    times: list[float] = []

    @client.train()
    def train(message: Message, context: Context) -> Message:
        (theta,) = message.content["arrays"].to_numpy_ndarrays()
        draw = np.random.default_rng(context.node_config["partition-id"])
        moved = theta - MODEL.gradients(theta, draw.uniform(-1.0, 1.0, (1, INPUTS)), np.ones(1))[0]
        content = {"arrays": ArrayRecord([moved]), "metrics": MetricRecord({"num-examples": 1})}
        return Message(RecordDict(content), reply_to=message)

    @server.main()
    def main(grid: Grid, _context: Context) -> None:
        strategy = FedAvg(fraction_evaluate=0.0, min_available_nodes=CLIENTS)
        strategy.start(
            grid,
            ArrayRecord([MODEL.start()]),
            num_rounds=ROUNDS,
            evaluate_fn=lambda *_: times.append(time.perf_counter()),  # before the first round and after each
        )

    run_simulation(
        server, client, num_supernodes=CLIENTS,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )  # fmt: skip
    return (times[-1] - times[1]) / (ROUNDS - 1) / CLIENTS


def flower_ratio() -> float:
    """How many times faster a client's round is."""
    theirs, mine = flowers(), ours()
    print(f"a client's round: Flower on Ray {theirs * 1e3:.2f} ms, ours {mine * 1e6:.3f} us")
    return theirs / mine


FIGURES = [Figure("simulation, a client's round", "Flower's simulation on Ray", 100.0, flower_ratio)]
