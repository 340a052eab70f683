"""The low-rank factor of a vote matrix, which every MinCq over the same voters shares."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pvmincq_jax._checks import check_points, check_positive, check_sample_weights, is_traced
from pvmincq_jax._types import Array, ArrayLike
from pvmincq_jax.voting.linalg import thin_svd

__all__ = ["VoteFactor", "vote_factor"]

# Votes of relative size 1e-11 and less are dropped. The vote margins change by at most that much of the largest
# singular value, and the second moment, orthogonal parts, by its square: below 1e-9 of itself for margins down to
# 1e-6 mu_max. In float32 rounding comes first.
_TOLERANCE = 1e-11
# Ranks are rounded up to one of 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, ... (by 16 from there on), so that nearby
# problems share a compiled program.
_SMALLEST_RANK = 16
# Below this size a plain SVD is as fast as a randomised one.
_SMALL = 200
# Directions that are looked for at first; wide Gaussian kernels have no more.
_FIRST_SAMPLE = 64


class VoteFactor(NamedTuple):
    """votes ~ left @ right, with few columns in between.

    Attributes:
      left: ``[m, r]``.
      right: ``[r, n]``, orthonormal rows (or rows of zeros, where the rank was rounded up).
    """

    left: Array
    right: Array


def _row_basis(votes: np.ndarray, tolerance: float) -> np.ndarray:
    """Orthonormal rows that span the votes' rows up to the tolerance, by decreasing singular value ``[r, n]``."""
    smaller = min(votes.shape)
    # A random combination of all rows finds the leading directions; doubled until the last one found is negligible.
    sample = _FIRST_SAMPLE
    rng = np.random.default_rng(0)
    while smaller > _SMALL and sample <= smaller // 3:
        basis, _ = np.linalg.qr(votes.T @ rng.standard_normal((votes.shape[0], sample)).astype(votes.dtype))
        _, singular, rotation = np.linalg.svd(votes @ basis, full_matrices=False)
        rank = int(np.sum(singular > tolerance * singular[0]))
        # Sixteen directions to spare make the random basis as good as the best one, up to a small factor.
        if rank <= sample - 16:
            return (basis @ rotation[:rank].T).T
        sample *= 2
    _, singular, rows = np.linalg.svd(votes, full_matrices=False)
    return rows[: int(np.sum(singular > tolerance * singular[0]))]


def _rounded_up(rank: int) -> int:
    """The next rank for which programs are compiled."""
    step = min(1 << max(int(rank - 1).bit_length() - 3, 2), 16)
    return max(_SMALLEST_RANK, -(-rank // step) * step)


def vote_factor(
    votes: ArrayLike,
    *,
    sample_weights: ArrayLike | None = None,
    tolerance: float | None = None,
    rank: int | None = None,
) -> VoteFactor:
    """Factors the votes once, for all margins, labels, folds and sample weights to come.

    Gaussian votes have a low numerical rank r, and `mincq` costs O(n r^2) a step. Outside jit the rank is measured.
    Inside jit shapes are fixed, so the rank is ``rank``, or min(m, n): factor outside and pass the value in when the
    votes do not change.

    Args:
      votes: ``[m, n]``.
      sample_weights: ``[m]`` or None; what the accuracy is measured under. A factor serves other weights too.
      tolerance: relative size of the singular values to drop; 1e-11, or the rounding of the dtype, when None. What
        is dropped changes the C-bound by its square: an accuracy of 1e-7 needs about ``1e-4 * margin``.
      rank: the number of rows to keep, instead of the tolerance.

    Returns:
      A `VoteFactor`. It is a value, not a function of the votes: derivatives do not pass through it, and `mincq` takes
      them from the votes themselves.

    Example:
      >>> factor = vote_factor(np.outer([1.0, 2.0, 3.0], [1.0, -1.0]))
      >>> factor.left.shape, factor.right.shape
      ((3, 2), (2, 2))
    """
    check_points("votes", votes)
    check_sample_weights("sample_weights", sample_weights, np.shape(votes)[0])
    if tolerance is not None:
        check_positive("tolerance", tolerance)
    smaller = min(np.shape(votes))
    if rank is not None and not 1 <= rank <= smaller:
        raise ValueError(f"rank must be in [1, {smaller}], the smaller side of the votes; it is {rank}")
    votes = jax.lax.stop_gradient(jnp.asarray(votes))
    if not jnp.issubdtype(votes.dtype, jnp.floating):
        votes = votes.astype(jnp.result_type(float))
    dtype = votes.dtype
    if is_traced(votes, sample_weights):
        weighted = votes if sample_weights is None else votes * jnp.sqrt(jnp.asarray(sample_weights))[:, None]
        # LAPACK's SVD may never return from infinite input.
        finite = jnp.all(jnp.isfinite(weighted))
        right = thin_svd(jnp.where(finite, weighted, 0.0))[2][: rank or smaller]
        right = jnp.where(finite, right, jnp.nan)
        return VoteFactor(votes @ right.T, right)
    concrete = np.asarray(votes)
    if sample_weights is not None:
        concrete = concrete * np.sqrt(np.asarray(sample_weights, dtype))[:, None]
    if rank is None:
        floor = max(_TOLERANCE, 4 * float(np.finfo(dtype).eps)) if tolerance is None else tolerance
        basis = _row_basis(concrete, floor)
        rank = min(smaller, _rounded_up(len(basis)))
    else:
        basis = np.linalg.svd(concrete, full_matrices=False)[2][:rank]
    right = jnp.asarray(np.concatenate([basis, np.zeros((rank - len(basis), basis.shape[1]), dtype)]))
    return VoteFactor(votes @ right.T, right)
