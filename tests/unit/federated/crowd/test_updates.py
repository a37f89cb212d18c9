"""An update opens as what its customer signed, and as nothing else."""

import numpy as np
import pytest

from reticent.chain import keys
from reticent.errors import GuaranteeError, ParameterError, ReticentError
from reticent.federated.crowd import updates
from reticent.federated.crowd.updates import Origin, Sealed, opened, seal, size_of
from reticent.store import tensors

from .round_of import CONTRACT, GRID, IDENTIFIER, PEOPLE, PLACE, key_of, numbers_of, with_

UPDATE = numbers_of(1)[0]
ORIGIN = PLACE.origin(0, PEOPLE[0].address)
SEALED = seal(GRID, UPDATE, ORIGIN, PEOPLE[0].key)


def test_what_was_sealed_is_opened():
    assert (opened(GRID, SEALED.file, SEALED.key, ORIGIN) == UPDATE).all()
    assert len(SEALED.file) == size_of(GRID)
    assert SEALED.key.hex() not in repr(SEALED)


def test_keys_and_files_are_fresh_each_time():
    other = seal(GRID, UPDATE, ORIGIN, PEOPLE[0].key)
    assert other.key != SEALED.key
    assert other.file != SEALED.file


ELSEWHERE = {
    "chain": with_(ORIGIN, chain_id=1),
    "contract": with_(ORIGIN, contract="0x" + "33" * 20),
    "task": with_(ORIGIN, task=b"\x33" * 32),
    "round": with_(ORIGIN, round=1),
    "customer": with_(ORIGIN, customer=PEOPLE[1].address),
}


@pytest.mark.parametrize("what", ELSEWHERE)
def test_it_opens_in_no_other_place(what):
    with pytest.raises(GuaranteeError, match="not signed by its customer"):
        opened(GRID, SEALED.file, SEALED.key, ELSEWHERE[what])


def signed_anew(hidden, origin, key):
    """What somebody makes of another's ciphertext."""
    signature = key.sign_message(updates._signed(origin, hidden))
    return updates._MAGIC + signature + hidden


def test_anothers_ciphertext_under_ones_own_name_does_not_open():
    mine = with_(ORIGIN, customer=PEOPLE[1].address)
    forged = signed_anew(SEALED.file[updates._HEAD :], mine, PEOPLE[1].key)
    with pytest.raises(GuaranteeError, match="does not open"):
        opened(GRID, forged, SEALED.key, mine)


def test_every_flipped_bit_is_refused():
    for bit in range(8 * len(SEALED.file)):
        file = bytearray(SEALED.file)
        file[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ReticentError):
            opened(GRID, bytes(file), SEALED.key, ORIGIN)


def test_other_keys_sizes_and_contents_are_refused():
    with pytest.raises(GuaranteeError, match="key does not open"):
        opened(GRID, SEALED.file, bytes(32), ORIGIN)
    for key in (b"", SEALED.key[:16], SEALED.key + b"\0"):
        with pytest.raises(ParameterError, match="32 bytes"):
            opened(GRID, SEALED.file, key, ORIGIN)
    for file in (b"", SEALED.file[:-1], SEALED.file + b"\0"):
        with pytest.raises(ParameterError, match="bytes, got"):
            opened(GRID, file, SEALED.key, ORIGIN)
    other = tensors.packed({"other!": UPDATE})  # of the same size
    hidden = updates.AESGCM(SEALED.key).encrypt(bytes(12), other, ORIGIN.words())
    with pytest.raises(ParameterError, match="safetensors"):
        opened(GRID, signed_anew(hidden, ORIGIN, PEOPLE[0].key), SEALED.key, ORIGIN)


def test_only_its_own_key_seals_and_only_what_is_on_the_grid():
    with pytest.raises(ParameterError, match="not of the customer"):
        seal(GRID, UPDATE, ORIGIN, key_of("somebody"))
    with pytest.raises(ParameterError, match="norm"):
        seal(GRID, np.full(15, 1 << 20, dtype=np.int32), ORIGIN, PEOPLE[0].key)
    for wrong in ({"task": b"short"}, {"customer": "0x12"}, {"round": -1}, {"chain_id": 1.0}):
        with pytest.raises(ReticentError):
            Origin(**{"chain_id": 1, "contract": CONTRACT, "task": IDENTIFIER, "round": 0,
                      "customer": PEOPLE[0].address} | wrong)  # fmt: skip


def is_taken(sealed: Sealed, origin):
    try:
        opened(GRID, sealed.file, sealed.key, origin)
    except ReticentError:
        return False
    return True


def test_planted_a_signature_that_is_not_checked_is_found(monkeypatch):
    forged = Sealed(signed_anew(SEALED.file[updates._HEAD :], ORIGIN, key_of("somebody")), SEALED.key)
    assert not is_taken(forged, ORIGIN)
    monkeypatch.setattr(updates, "writer_of", lambda message, signature: PEOPLE[0].address)
    assert is_taken(forged, ORIGIN)


def test_planted_a_round_that_is_not_bound_is_found(monkeypatch):
    monkeypatch.setattr(
        Origin, "words", lambda self: updates._MAGIC + self.task + self.customer.lower().encode()
    )
    loose = seal(GRID, UPDATE, ORIGIN, PEOPLE[0].key)
    assert [what for what, origin in ELSEWHERE.items() if is_taken(loose, origin)] == [
        "chain",
        "contract",
        "round",
    ]


def test_a_message_is_signed_by_whom_it_says():
    key = key_of("somebody")
    signature = key.sign_message(b"words")
    assert keys.writer_of(b"words", signature) == key.address
    assert keys.writer_of(b"other", signature) != key.address
    for none in (b"", bytes(65), signature[:-1] + b"\x05", signature + b"\0"):
        assert keys.writer_of(b"words", none) != key.address
