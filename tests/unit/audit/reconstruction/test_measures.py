"""Squared error, PSNR, SSIM, attributes and assignments against a second way to work them out."""

import numpy as np
import pytest

from reticent.audit.reconstruction import measures
from reticent.errors import ParameterError
from reticent.federated.encoding import Encoding
from reticent.mechanisms.record import Category, Number


def picture(seed, side=16):
    return np.random.default_rng(seed).uniform(size=(side, side))


def test_psnr_of_a_known_error():
    truth = np.zeros((4, 4))
    assert measures.psnr(truth, truth + 0.1) == pytest.approx(20.0)
    assert measures.psnr(truth, truth + 0.2, span=2.0) == pytest.approx(20.0)
    assert measures.psnr(truth, truth) == measures.MOST_PSNR


def test_ssim_is_the_mean_of_its_windows():
    x, y = picture(1), picture(2)
    offsets = np.arange(11) - 5
    weights = np.exp(-(offsets[:, None] ** 2 + offsets**2) / (2 * 1.5**2))
    weights /= weights.sum()
    found = []
    for i in range(6):
        for j in range(6):
            a, b = x[i : i + 11, j : j + 11], y[i : i + 11, j : j + 11]
            ma, mb = (weights * a).sum(), (weights * b).sum()
            va, vb = (weights * (a - ma) ** 2).sum(), (weights * (b - mb) ** 2).sum()
            cov = (weights * (a - ma) * (b - mb)).sum()
            found.append(
                (2 * ma * mb + 1e-4) * (2 * cov + 9e-4) / ((ma**2 + mb**2 + 1e-4) * (va + vb + 9e-4))
            )
    assert measures.ssim(x, y) == pytest.approx(np.mean(found), abs=1e-12)
    assert measures.ssim(x, x) == pytest.approx(1.0)
    assert measures.ssim(x, 1.0 - x) < 0.0


def test_batches_are_matched_whatever_their_order():
    truth = np.stack([picture(seed) for seed in range(6)])
    order = np.array([3, 0, 5, 1, 4, 2])
    noisy = truth[order] + 0.01
    assert (order[measures.matched(truth, noisy)] == np.arange(6)).all()
    more = np.concatenate([np.zeros((2, 16, 16)), noisy])
    assert (order[measures.matched(truth, more) - 2] == np.arange(6)).all()


def test_attributes_right():
    encoding = Encoding(
        [Number("age", (0.0, 100.0)), Category("sex", ("a", "b")), Category("work", ("x", "y", "z"))],
        Category("rich", ("no", "yes")),
    )
    table = {"age": [20.0, 60.0], "sex": ["a", "b"], "work": ["z", "y"]}
    truth = encoding.encoded(table)
    assert measures.attributes_right(encoding, truth, truth).tolist() == [1.0, 1.0]
    near = np.clip(truth * 0.3 + 0.05, -1.0, 1.0)
    near[:, 0] = truth[:, 0] + 0.09
    assert measures.attributes_right(encoding, truth, near).tolist() == [1.0, 1.0]
    wrong = encoding.encoded({"age": [26.0, 60.0], "sex": ["b", "b"], "work": ["z", "x"]})
    assert measures.attributes_right(encoding, truth, wrong).tolist() == pytest.approx([1 / 3, 2 / 3])


@pytest.mark.parametrize(
    ("call", "part"),
    [
        (lambda: measures.mse([1.0], [1.0, 2.0]), "rebuilt must have the shape (1,) of the truth"),
        (lambda: measures.ssim(np.zeros((8, 8)), np.zeros((8, 8))), "pictures must be 11 x 11 or larger"),
        (lambda: measures.matched(np.zeros((3, 2)), np.zeros((2, 2))), "rebuilt must be 3 records or more"),
        (lambda: measures.psnr([0.0], [1.0], span=0.0), "span must be > 0"),
    ],
)
def test_refusals_are_one_line(call, part):
    with pytest.raises(ParameterError) as raised:
        call()
    assert part in str(raised.value)
    assert "\n" not in str(raised.value)
