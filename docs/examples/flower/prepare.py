"""What operator and clients need before a run: `python prepare.py FOLDER CLIENTS`.

FOLDER/task.json       the signed task
FOLDER/enrolment.key   the operator's: who has it knows every client's key; its ledger will lie beside it
FOLDER/signer          the public key, in hexadecimal, that clients are told beforehand
FOLDER/clients/N.json  the enrolment of client N: given to it once, in secret
"""

import os
import sys
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from private_example.data import MODEL

from reticent.federated.tasks import designed, signed
from reticent.fleet.enrolment import enrolled
from reticent.fleet.secret_file import kept_secret


def main(folder: Path, clients: int) -> None:
    """Write the files, for nobody else to read."""
    os.umask(0o077)
    (folder / "clients").mkdir(parents=True)
    task = designed(
        "example",
        MODEL,
        epsilon=4.0,
        purpose="Show how a Flower app trains on private reports",
        rounds=3,
        group=clients,
        participations=3,
        rate=1.0,
    )
    key, master = Ed25519PrivateKey.generate(), kept_secret(folder / "enrolment.key")
    (folder / "task.json").write_bytes(signed(task, key))
    (folder / "signer").write_text(key.public_key().public_bytes_raw().hex())
    for number in range(clients):
        (folder / "clients" / f"{number}.json").write_text(enrolled(master).to_json())


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
