"""Structural checks: right mechanisms pass, every one of them can fail."""

import math
from fractions import Fraction

import pytest

from reticent.audit import check_structure
from reticent.audit.structure import check_geometric
from reticent.mechanisms.categorical import OLH, OUE, Subset
from reticent.mechanisms.gaussian import DiscreteGaussian
from reticent.mechanisms.geometric import GeometricDigits, TwoSidedGeometric
from reticent.mechanisms.numeric.laplace import Laplace
from reticent.mechanisms.vector import Codebook, VectorDuchi, VectorLaplace

RIGHT = [
    *(OUE(epsilon=e, categories=k) for e in (0.1, 1.0, 6.0) for k in (2, 50)),
    *(OLH(epsilon=e, categories=k) for e in (0.1, 1.0, 6.0) for k in (2, 50)),
    *(Subset(epsilon=e, categories=k) for e in (0.1, 1.0, 6.0) for k in (2, 10, 50, 300)),
    *(VectorDuchi(epsilon=1.0, dimensions=d) for d in (1, 2, 5, 6, 7, 90)),
    *(Codebook(epsilon=e, dimensions=d, bits=4) for e in (0.01, 1.0, 8.0) for d in (1, 3, 50)),
    VectorDuchi(epsilon=1.0, dimensions=9, bounds=(0.0, 7.0)),
    *(
        VectorLaplace(epsilon_per_unit=e, dimensions=n, distance_unit="km")
        for e in (0.1, 5.0)
        for n in (1, 2, 7)
    ),
    *(Laplace(epsilon=e) for e in (0.01, 1.0, 10.0)),
    Laplace(epsilon=1.0, bounds=(0.0, 130.0)),
    TwoSidedGeometric(1.0, 3),
    DiscreteGaussian(1025, 1.0),
    DiscreteGaussian(1 << 24, 0.5),
]  # fmt: skip


@pytest.mark.parametrize("mechanism", RIGHT, ids=repr)
def test_right_mechanisms_pass(mechanism):
    found = check_structure(mechanism)
    assert found.passed, found.detail
    assert math.isfinite(found.loss)


def test_thresholds_of_another_rate_are_found():
    noise = TwoSidedGeometric(1.0, 1000)
    noise.digits = GeometricDigits.made(Fraction(1001, 1000 * 1000))
    found = check_geometric(noise)
    assert not found.passed
    assert found.loss == pytest.approx(1.001, rel=1e-6)
    assert "its own check" in check_structure(noise).detail


def test_noise_for_half_the_width_is_found():
    mechanism = Laplace(epsilon=1.0)
    mechanism._noise = TwoSidedGeometric(1.0, mechanism._noise.sensitivity // 2)
    found = check_structure(mechanism)
    assert not found.passed
    assert found.loss == pytest.approx(2.0)


def test_a_gaussian_with_too_little_noise_is_found():
    mechanism = DiscreteGaussian(2048, 1.0)
    mechanism.sigma *= 0.999
    assert not check_structure(mechanism).passed


def test_half_spaces_in_many_dimensions_are_read_off_the_scale():
    mechanism = VectorDuchi(epsilon=1.0, dimensions=40)
    mechanism._unit_scale *= 0.9
    assert not check_structure(mechanism).passed


def test_unknown_kinds_are_refused():
    with pytest.raises(TypeError, match="no structural check"):
        check_structure(object())
