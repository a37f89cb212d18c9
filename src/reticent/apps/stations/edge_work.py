"""The command `reticent location stations edge`: fetches the provider's signed files and listens."""

from __future__ import annotations

import gc
import re
from pathlib import Path

from reticent.apps.stations.edge import Edge, Signed, application, checked_batch
from reticent.apps.stations.line import ProviderLine
from reticent.errors import ParameterError
from reticent.fleet.intake import Intake
from reticent.fleet.revocation import Revocations
from reticent.fleet.secret_file import kept_secret
from reticent.fleet.signing import verified
from reticent.fleet.transport import Http
from reticent.location.stations.area import Area, StationList, StationService
from reticent.location.stations.mixing import Cover
from reticent.service.serve import address, listen, run
from reticent.service.settings import Settings

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}", re.ASCII)


def public_key(signer: str) -> bytes:
    """Return the bytes of a public key."""
    if not re.fullmatch(r"[0-9a-f]{64}", signer, re.ASCII):
        raise ParameterError("signer must be 64 hexadecimal digits")
    return bytes.fromhex(signer)


def edge(
    *,
    provider: str,
    signer: str,
    name: str,
    master: Path,
    batch: int,
    window: float,
    host: str,
    port: int,
) -> None:
    """Run the edge until it is interrupted."""
    if not _NAME.fullmatch(name):
        raise ParameterError(f"name must be 1 to 80 letters, digits, dots, dashes, got {name!r:.60}")
    checked_batch(batch, window)
    service = Http(provider)
    below = f"api/v1/stations/{name}"
    signed = fetched(service, below, public_key(signer))
    intake = Intake(kept_secret(master), Revocations.beside(master))
    cover = Cover(signed.area, signed.area.companions(signed.files["library"], public_key(signer)))
    made = Edge(
        signed,
        intake,
        cover,
        ProviderLine(provider, f"{below}/points").send,
        batch=batch,
        window_s=window,
    )
    app = application(made, Settings(master.parent), lambda path: service.fetch(f"{below}/{path}"))
    with listen(host, port) as place:
        print(f"The edge of {name} listens at {address(host, place.getsockname()[1])}", flush=True)
        gc.freeze()  # what is loaded is no garbage, and need not be looked at again
        run(app, place)


def fetched(service: Http, below: str, signer: bytes) -> Signed:
    """Fetch and verify the provider's signed files.

    Raises:
        GuaranteeError, ParameterError: It is not what it says.
        SourceError: The provider cannot be reached.
    """
    files = {path: service.fetch(f"{below}/{path}") for path in ("service", "map", "list", "library")}
    text = verified(StationService, files["service"], signer)
    if verified(StationList, files["list"], signer).id.hex() != text.stations:
        raise ParameterError("the list must be the one that the service signed")
    return Signed(Area.of(text, files["map"]), files)
