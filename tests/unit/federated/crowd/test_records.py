"""Files of appliances: whatever is in a row, it is a record."""

import numpy as np
import pytest

from reticent.errors import ParameterError
from reticent.federated.crowd.records import read


def test_rows_of_all_files_of_a_home(tmp_path):
    (tmp_path / "a.csv").write_text("0.5,1,2\n\n 1e-1 , -2 , 0\n")
    np.savez(tmp_path / "b.npz", features=np.array([[3, 4]], dtype=np.int16), labels=np.array([1]))
    features, labels = read([tmp_path / "a.csv", tmp_path / "b.npz"], 2)
    assert features.tolist() == [[0.5, 1.0], [0.1, -2.0], [3.0, 4.0]]
    assert labels.tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    "row",
    [
        "",
        "x",
        "1",
        "1,2,3,4,5,6",
        "a,b,c",
        ",,",
        '"1","2","2"',
        "nan,inf,-inf",
        "1,2,1e300",
        "\0,\0,\0",
        "9" * 200_000,
    ],
)
def test_no_row_is_an_error_and_no_row_moves_another(tmp_path, row):
    (tmp_path / "a.csv").write_text(f"1,2,0\n{row}\n3,4,1\n")
    features, labels = read([tmp_path / "a.csv"], 2)
    assert features.shape == (2 + (row != ""), 2)
    assert (features[0].tolist(), features[-1].tolist()) == ([1.0, 2.0], [3.0, 4.0])
    assert (labels[0], labels[-1]) == (0, 1)


def test_bytes_that_are_no_text_are_a_row_too(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"\xff\xfe,1,1\n")
    assert read([tmp_path / "a.csv"], 2)[0].tolist() == [[0.0, 1.0]]


def test_a_file_that_is_none_is_refused_by_its_name(tmp_path):
    (tmp_path / "a.txt").write_text("1,2")
    (tmp_path / "b.npz").write_bytes(b"no")
    np.savez(tmp_path / "c.npz", features=np.zeros((2, 2)), labels=np.zeros(3))
    (tmp_path / "d.npz").write_bytes(b"")
    with (tmp_path / "e.npz").open("wb") as file:
        np.save(file, np.zeros((2, 2)))
    for name, said in (
        ("d.npz", "must be an npz file with the arrays"),
        ("e.npz", "must be an npz file with the arrays"),
        ("none.csv", "there is no file"),
        ("a.txt", "must be one of .csv, .npz, got a.txt"),
        ("b.npz", "must be an npz file with the arrays"),
        ("c.npz", "must hold features by rows"),
    ):
        with pytest.raises(ParameterError, match=said):
            read([tmp_path / name], 2)
    with pytest.raises(ParameterError, match="at least one file"):
        read([], 2)


def test_a_damaged_file_is_one_line(tmp_path):
    """Whichever bytes are damaged: it is read as it is, or refused by its name."""
    np.savez_compressed(tmp_path / "a.npz", features=np.arange(80.0).reshape(40, 2), labels=np.zeros(40))
    whole, draw, refused = (tmp_path / "a.npz").read_bytes(), np.random.default_rng(1), []
    for _ in range(300):
        raw = bytearray(whole)
        for at in draw.integers(0, len(raw), 3):
            raw[at] ^= int(draw.integers(1, 256))
        (tmp_path / "b.npz").write_bytes(bytes(raw))
        try:
            read([tmp_path / "b.npz"], 2)
        except ParameterError as error:
            refused.append(str(error))
    assert len(refused) > 200
    assert all(line.startswith("b.npz must") for line in refused)
