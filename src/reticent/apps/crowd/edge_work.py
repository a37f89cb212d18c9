"""What `reticent crowd edge` does."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from reticent.errors import ParameterError
from reticent.federated.crowd.modes import DocumentedSplit, NoisedSplit
from reticent.federated.crowd.task_text import MOST_BYTES, CrowdTask
from reticent.federated.split.documented import Documented
from reticent.federated.split.edge import EdgeServer
from reticent.federated.split.sessions import EdgeTask
from reticent.federated.torch_models import torch_or_error


def edge(folder: Path, tasks: list[Path], *, port: int, host: str, capacity: int) -> None:
    """Serve until interrupted."""
    found: dict[str, EdgeTask] = {}
    for file in tasks:
        name, task, words = _read(file)
        found[name] = task
        print(f"task {name}: {words}", flush=True)
    try:
        server = EdgeServer(found, folder, host, port, capacity=capacity)
    except OSError as error:
        raise ParameterError(f"host and port must be free to listen at, got {host}:{port}") from error
    if any(isinstance(task, Documented) for task in found.values()):
        torch_or_error().set_num_threads(1)  # requests are parallel already
    with server:
        print(f"edge {server.url}", flush=True)
        with suppress(KeyboardInterrupt):
            server.serve_forever()


def _read(file: Path) -> tuple[str, EdgeTask, str]:
    """A task by its name, with what must be known of it."""
    if not file.is_file():
        raise ParameterError(f"there is no file {file}")
    with file.open("rb") as handle:
        text = CrowdTask.from_json(handle.read(MOST_BYTES + 1))
    training = text.training
    if isinstance(training, NoisedSplit):
        task = training.noised_task("0", text.grid)
        kept = f"{task.guarantee.mu:g}-GDP for one record, before it comes here"
        return str(text.cid), task, f"mode noised, {kept}"
    if isinstance(training, DocumentedSplit):
        return str(text.cid), training.documented, f"mode documented. {training.warning(text.rounds)}"
    raise ParameterError(f"mode must be noised or documented for an edge, got {training.mode}: it needs none")
