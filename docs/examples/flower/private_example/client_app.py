"""A Flower client like any other; the mod is all that makes it private."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from private_example.data import MODEL, records_of
from reticent.federated import Client
from reticent.federated.flower import PrivateMod, of_node, of_simulation

LOCAL_RATE = 0.1


def client(context: Context) -> Client:
    """The client that a SuperNode's own configuration names; in a simulation, one of the run's folder."""
    return of_node(context) if "reticent-ledger" in context.node_config else of_simulation(context)


app = ClientApp(mods=[PrivateMod(client, local_rate=LOCAL_RATE)])


@app.train()
def train(message: Message, context: Context) -> Message:
    """One step on the client's own records."""
    (theta,) = message.content["arrays"].to_numpy_ndarrays()
    features, targets = records_of(context.node_config["partition-id"])
    gradient = MODEL.gradients(theta, features, targets).mean(axis=0)
    content = RecordDict(
        {
            "arrays": ArrayRecord([theta - LOCAL_RATE * gradient]),
            "metrics": MetricRecord({"loss": float(MODEL.losses(theta, features, targets).mean())}),  # stays
        }
    )
    return Message(content, reply_to=message)
