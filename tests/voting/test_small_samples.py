"""Small samples: the moments of all points, by plain sums and by MinCq on the points themselves."""

import jax
import numpy as np
import pytest

import pvmincq_jax as pvm
from pvmincq_jax.voting.factor import from_moments, from_votes, moments
from pvmincq_jax.voting.program import prepare, solve_prepared


def sample(offset=0.0, gamma=0.7):
    rng = np.random.default_rng(0)
    points, weights = rng.normal(size=(500, 3)) + offset, rng.random(500)
    labels = np.clip(points[:, 0] - offset, -1, 1)
    return pvm.GaussianVoters(points[:40], gamma).votes(points), labels, weights / weights.sum()


def parts(votes, labels, shares, size=90):
    cuts = [slice(start, start + size) for start in range(0, len(votes), size)]
    return [(votes[cut], labels[cut], shares[cut]) for cut in cuts]


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_both_roads_keep_the_moments(offset):
    votes, labels, shares = sample(offset)
    second, first = votes.T @ (shares[:, None] * votes), votes.T @ (shares * labels)
    for small in (from_moments(*moments(parts(votes, labels, shares)), 1e-3), from_votes(parts(votes, labels, shares))):
        assert len(small.rows) <= 41
        np.testing.assert_allclose(small.rows.T @ small.rows, second, atol=1e-13)
        np.testing.assert_allclose(small.rows.T @ small.labels, first, atol=1e-15)
        assert np.sum(small.labels**2) <= 1


def test_few_rows_are_enough_for_wide_kernels_and_what_is_dropped_is_bounded():
    """For every w of the box: w'Mw changes by no more than 1e-8 mu^2."""
    votes, labels, shares = sample(gamma=0.02)
    margin = 0.1 * float(np.mean(np.abs(votes.T @ (shares * labels))))
    small = from_moments(*moments(parts(votes, labels, shares)), margin)
    assert len(small.rows) < 30
    rng = np.random.default_rng(1)
    dropped = votes.T @ (shares[:, None] * votes) - small.rows.T @ small.rows
    worst = np.linalg.eigh(dropped)[1][:, -1]
    for w in [*rng.choice([-1, 1], (50, 40)) / 40, np.sign(worst) / 40, worst / np.max(np.abs(worst)) / 40]:
        assert abs(w @ dropped @ w) <= 1e-8 * margin**2


def test_doubt_is_no_less_than_the_rounding_of_the_moments():
    second, first, square = moments(parts(*sample()))
    assert from_moments(second, first, square, 1e-2).doubt == pytest.approx(1e-12)
    assert from_moments(second, first, square, 1e-9).doubt > 1e-16 * np.max(second)
    assert from_votes(parts(*sample())).doubt == 0


@pytest.mark.parametrize("fraction", [1e-5, 0.02, 0.4])
def test_the_same_vote_as_on_all_points(fraction):
    votes, labels, shares = sample()
    with jax.enable_x64(True):
        mu = fraction * float(pvm.max_margin(votes, labels, sample_weights=shares))
        whole = pvm.mincq(votes, labels, mu, sample_weights=shares)
        every = parts(votes, labels, shares)
        small = from_votes(every) if fraction < 1e-2 else from_moments(*moments(every), mu)
        prepared = prepare(
            small.rows, small.labels, np.ones(len(small.labels)), np.ones(40, bool), None, "interior_point"
        )
        few = solve_prepared(*prepared, mu, "interior_point")
    assert int(few.status) == int(whole.status) == pvm.Status.SOLVED
    np.testing.assert_allclose(1 - few.c_bound, 1 - whole.c_bound, rtol=1e-7)
