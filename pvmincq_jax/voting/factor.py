"""Votes in few rows, and the factorisations that it takes.

The low-rank factor of a vote matrix is shared by every MinCq over the same voters. Of a sample MinCq knows no more than
M = E h(x) h(x)' and m = E y h(x). Any rows R and labels q with R'R = M and R'q = m are the same program, and their
number is the rank of the votes, whatever the number of points. Both roads to a small sample take the votes some points
at a time, so that they need not fit in memory.

Factorisations under vmap go one matrix after the other on a CPU, and batched elsewhere. jaxlib's batched LAPACK kernels
on the CPU share a pool of threads, and when several computations are in flight they may wait for each other for ever;
called matrix by matrix they do not, at the same speed. So a batch is a loop on a CPU, in which no problem waits for a
slower one, and a batch of kernels on an accelerator. Their results are constants to JAX: MinCq takes its derivatives
from the implicit function theorem, never through a factorisation.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg.lapack import dpstrf

from pvmincq_jax._checks import check_count, check_number, check_points, check_positive, check_sample_weights, is_traced
from pvmincq_jax._fork import check_process
from pvmincq_jax._types import AnyArray, Array, ArrayLike

__all__ = ["VoteFactor", "vote_factor"]


def loop_on_cpu(function: Callable[..., Any], side_by_side: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """The function of pytrees of arrays, with this batching rule, and constant to derivatives.

    Args:
      function: of arrays.
      side_by_side: what takes its place in a batch of kernels, where each branch is taken for all; None for itself.
    """
    # Compiled apart: traced once, where the uses below would trace it each time.
    compiled = jax.jit(function)
    batched = compiled if side_by_side is None else jax.jit(side_by_side)
    one_by_one, batchable = jax.custom_batching.sequential_vmap(compiled), jax.custom_batching.custom_vmap(compiled)

    @batchable.def_vmap
    def rule(axis_size: int, in_batched: list[Any], *arguments: Any) -> tuple[Any, Any]:
        del axis_size
        axes = tuple(jax.tree.map(lambda flag: 0 if flag else None, in_batched))
        in_turn, together = jax.vmap(one_by_one, axes), jax.vmap(batched, axes)
        results = jax.lax.platform_dependent(*arguments, cpu=in_turn, default=together)
        return results, jax.tree.map(lambda _: True, results)

    @functools.wraps(function)
    def apply(*arguments: Any) -> Any:
        # The rule above is traced with a mesh that is set, be it empty. Set here, too, jit knows its own trace again.
        with jax.sharding.use_abstract_mesh(jax.sharding.get_abstract_mesh()):
            return batchable(*jax.lax.stop_gradient(arguments))

    return apply


@loop_on_cpu
def _orthonormal_columns(matrix: Array) -> Array:
    return jnp.linalg.qr(matrix)[0]


@loop_on_cpu
def _thin_svd(matrix: Array) -> tuple[Array, ...]:
    return tuple(jnp.linalg.svd(matrix, full_matrices=False))


def orthonormal_columns(matrix: Array) -> Array:
    """Q ``[m, r]`` of the thin QR factorisation of a matrix ``[m, r]``; of NumPy's on the host."""
    return np.linalg.qr(matrix)[0] if isinstance(matrix, np.ndarray) else _orthonormal_columns(matrix)


def thin_svd(matrix: Array) -> tuple[Array, ...]:
    """Left vectors ``[m, k]``, singular values ``[k]`` and right vectors ``[k, n]``, with k the smaller side."""
    return np.linalg.svd(matrix, full_matrices=False) if isinstance(matrix, np.ndarray) else _thin_svd(matrix)


# Votes of relative size 1e-11 and less are dropped. The vote margins change by at most that much of the largest
# singular value, and the second moment, orthogonal parts, by its square: below 1e-9 of itself for margins down to
# 1e-6 mu_max. In float32 rounding comes first.
_TOLERANCE = 1e-11
# The leading rows: votes of this relative size are enough, as a rule, for margins from a few 1e-2 mu_max on.
_LEADING = 2e-5
# Programs are compiled for few ranks, so that nearby problems share one. Each is about the root of 2 times the one
# before, for at most about twice the work of a step, which grows as the square of the rank; less where that is much.
_LADDER = (24, 32, 44, 64, 92, 128, 160, 200, 256)
_LAST_STEP = 64
# Below this size a plain SVD is as fast as a randomised one.
_SMALL = 200
# Directions that are looked for at first; wide Gaussian kernels have no more.
_FIRST_SAMPLE = 64
# Directions to spare, which make a random basis as good as the best one, up to a small factor.
_SPARE = 16
# The relative change of the second moment that rows left out may cause; 1e-7 counts as solved.
_DROPPED = 1e-8
# How many units in the last place of its largest entry M is known to, with room to spare.
_ROUNDED = 16
# Singular values below this, relative to the largest, are rounding.
_NOTHING = 1e-14


class VoteFactor(NamedTuple):
    """votes ~ left @ right, with few columns in between.

    Attributes:
      left: ``[m, r]``.
      right: ``[r, n]``, orthonormal rows (or rows of zeros, where the rank was rounded up).
    """

    left: Array
    right: Array


def floating_dtype(votes: ArrayLike) -> np.dtype:
    """The dtype of the votes if it is float32 or float64, else the default one; as JAX's configuration allows it."""
    dtype = jax.dtypes.canonicalize_dtype(getattr(votes, "dtype", float))
    return np.dtype(dtype if dtype in (jnp.float32, jnp.float64) else jnp.result_type(float))


def array_module(array: Array) -> Any:
    """NumPy for an array of its own, else JAX's. On the host nothing is compiled, inside a caller's jit either."""
    return np if isinstance(array, np.ndarray) else jnp


def constant(array: Array) -> Array:
    """The array without derivatives. One of NumPy's has none."""
    return array if isinstance(array, np.ndarray) else jax.lax.stop_gradient(array)


def _leading_rows(votes: np.ndarray, tolerance: float) -> np.ndarray:
    """Orthonormal rows that span the votes' rows up to the tolerance, by decreasing singular value ``[r, n]``."""
    smaller = min(votes.shape)
    # A random combination of all rows finds the leading directions; doubled until the last one found is negligible.
    sample = _FIRST_SAMPLE
    rng = np.random.default_rng(0)
    while smaller > _SMALL and sample <= smaller // 3:
        basis, _ = np.linalg.qr(votes.T @ rng.standard_normal((votes.shape[0], sample)).astype(votes.dtype))
        _, singular, rotation = np.linalg.svd(votes @ basis, full_matrices=False)
        rank = int(np.sum(singular > tolerance * singular[0]))
        if rank <= sample - _SPARE:
            return (basis @ rotation[:rank].T).T
        sample *= 2
    _, singular, rows = np.linalg.svd(votes, full_matrices=False)
    return rows[singular > tolerance * singular[0]]


def ladder_rank(rank: int) -> int:
    """The next rank for which programs are compiled.

    Args:
      rank: at least 1.

    Returns: one of 24, 32, 44, 64, 92, 128, 160, 200, 256, 320, 384, ...

    Example:
      >>> ladder_rank(50), ladder_rank(60), ladder_rank(300)
      (64, 64, 320)
    """
    return next((step for step in _LADDER if rank <= step), -(-rank // _LAST_STEP) * _LAST_STEP)


def leading_rank(factor: VoteFactor) -> int:
    """How many of its first rows are enough at margins that are not small; all of them if it is traced."""
    rank = factor.right.shape[0]
    if is_traced(factor):
        return rank
    sizes = np.linalg.norm(np.asarray(factor.left), axis=0)
    large = int(np.max(np.flatnonzero(sizes > _LEADING * np.max(sizes)), initial=0)) + 1
    # A function that is being compiled takes the rank that there is; outside of one, programs are shared.
    return min(rank, -(-large // 8) * 8 if is_compiling() else ladder_rank(large))


def is_compiling() -> bool:
    """Whether the caller is inside jit, where every operation of JAX gives a traced array."""
    return is_traced(jax.device_put(0.0))


def _traced_rows(votes: Array, rank: int) -> Array:
    """Orthonormal rows that span the votes' leading rows, as `_leading_rows` finds them, at a given rank ``[r, n]``."""
    smaller = min(votes.shape)
    if smaller > _SMALL and rank + _SPARE <= smaller // 2:
        sample = jax.random.normal(jax.random.key(0), (votes.shape[0], rank + _SPARE), votes.dtype)
        basis = orthonormal_columns(votes.T @ sample)
        return thin_svd(votes @ basis)[2][:rank] @ basis.T
    return thin_svd(votes)[2][:rank]


def vote_factor(
    votes: ArrayLike,
    *,
    sample_weights: ArrayLike | None = None,
    tolerance: float | None = None,
    rank: int | None = None,
) -> VoteFactor:
    """Factors the votes once, for all margins, labels, folds and sample weights to come (not in the paper).

    Gaussian votes have a low numerical rank r, and `mincq` costs O(n r^2) a step at most. The rank of concrete votes is
    measured, also of those that a jitted function captures. Traced votes have no numbers yet: their rank is ``rank``,
    or min(m, n).

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
    check_process()
    if not is_traced(votes, sample_weights):
        # On the host, inside jit too: there any operation of JAX, even on a concrete array, is traced.
        votes = np.asarray(votes) if isinstance(votes, jax.Array) else votes
        sample_weights = np.asarray(sample_weights) if isinstance(sample_weights, jax.Array) else sample_weights
    check_points("votes", votes)
    dtype = floating_dtype(votes)
    check_sample_weights("sample_weights", sample_weights, np.shape(votes)[0], dtype)
    if tolerance is not None:
        check_number("tolerance", tolerance, check_positive)
    smaller = min(np.shape(votes))
    if rank is not None and check_count("rank", rank, 1) > smaller:
        raise ValueError(f"rank must be in [1, {smaller}], the smaller side of the votes; it is {rank}")
    xp: Any = jnp if is_traced(votes, sample_weights) else np
    # A cast to float32 may overflow.
    with np.errstate(over="ignore", invalid="ignore"):
        matrix: Any = xp.asarray(jax.lax.stop_gradient(votes) if xp is jnp else votes, dtype)
        weighted = matrix
        if sample_weights is not None:
            weighted = matrix * xp.sqrt(xp.asarray(sample_weights, dtype))[:, None]
    if xp is jnp:
        # LAPACK's SVD may never return from infinite input.
        finite = jnp.all(jnp.isfinite(weighted))
        right = jnp.where(finite, _traced_rows(jnp.where(finite, weighted, 0.0), rank or smaller), jnp.nan)
        return VoteFactor(matrix @ right.T, right)
    _check_sum("votes", matrix)
    _check_sum("sample_weights", weighted)
    if rank is None:
        floor = max(_TOLERANCE, 4 * float(np.finfo(dtype).eps)) if tolerance is None else tolerance
        basis = _leading_rows(weighted, floor)
        rank = min(smaller, ladder_rank(len(basis)))
    else:
        basis = np.linalg.svd(weighted, full_matrices=False)[2][:rank]
    rows = np.concatenate([basis, np.zeros((rank - len(basis), basis.shape[1]), dtype)])
    with jax.ensure_compile_time_eval():
        return VoteFactor(*jax.device_put((matrix @ rows.T, rows)))  # `jnp.asarray` would compile for each shape


def _check_sum(name: str, matrix: np.ndarray) -> None:
    """An error unless products with the matrix stay finite in its precision: LAPACK may never return from infinity."""
    most = float(np.finfo(matrix.dtype).max) / 64
    with np.errstate(over="ignore"):
        total = float(np.sum(np.abs(matrix)))
    if not total <= most:
        raise ValueError(
            f"{name} must be smaller: the sizes of the votes, times the roots of the sample weights, may add up to "
            f"{most:.3g} in {matrix.dtype}; their sum is {total:.3g}"
        )


def sample_basis(votes: AnyArray, shares: AnyArray, voter_mask: AnyArray, factor: VoteFactor, turn: bool) -> Array:
    """Orthonormal columns Q ``[m, r]``, with which F = Q' V.

    What the factor leaves out of the votes is projected away under these shares, so that it changes the second moment
    by its square only. With voters masked out, the rows of F are no longer orthogonal, which costs digits below 1e-3
    mu_max: a factor of more voters spans directions in which those left can only cancel. Turned so that F's rows there
    are zero, at the price of an SVD, they cost none.
    """
    xp = array_module(votes)
    root = xp.sqrt(constant(shares))[:, None]
    basis = orthonormal_columns(root * factor.left)
    if turn:
        basis = basis @ thin_svd(xp.where(voter_mask, (root * basis).T @ votes, 0.0))[0]
    return basis


class SmallSample(NamedTuple):
    """Rows with the moments of a sample, and what its labels are there.

    Attributes:
      rows: R ``[r, n]``.
      labels: q ``[r]``, of length at most 1.
      doubt: by how much w'R'Rw may be off for weights of n |w|^2 = 1: rounding of M, and rows left out.
    """

    rows: np.ndarray
    labels: np.ndarray
    doubt: float = 0.0


# Some points of a sample: votes [p, n], labels [p] and shares [p], which add up to 1 over all parts.
Part = tuple[np.ndarray, np.ndarray, np.ndarray]


def moments(parts: Iterable[Part]) -> tuple[np.ndarray, np.ndarray, float]:
    """M ``[n, n]``, m ``[n]`` and E y^2, sums over the points."""
    second, first, square = np.zeros((1, 1)), np.zeros(1), 0.0
    for votes, labels, shares in parts:
        scaled = np.asarray(votes, float) * np.sqrt(shares)[:, None]
        second = second + scaled.T @ scaled
        first = first + (np.sqrt(shares) * labels) @ scaled
        square += float(shares @ labels**2)
    return second, first, square


def from_moments(second: np.ndarray, first: np.ndarray, square: float, margin: float) -> SmallSample:
    """The small sample of given moments, for margins from mu = ``margin`` on.

    With s^2 = E y^2 the first row is m' / s, of label s, and the others, of label 0, are a pivoted Cholesky factor of
    M - m m' / s^2: R'q = m holds whatever is dropped. Rows end where what is left, E, has a diagonal of at most t: then
    w'Ew <= trace(E) |w|^2 <= t n |w|^2 <= t, as |w_j| <= 1/n. That is to be 1e-8 of the second moment, itself at least
    mu^2; but M is known no better than to the rounding of its largest entry.

    Args:
      second, first, square: of `moments`.
      margin: the least mu that will be asked for.

    Returns: a `SmallSample` of at most n + 1 rows, whose doubt is t.
    """
    tolerance = max(_DROPPED * margin**2, _ROUNDED * np.finfo(float).eps * float(np.max(np.diag(second))))
    length = np.sqrt(square)
    top = first / length
    pivoted, order, rank, _ = dpstrf(second - np.outer(top, top), tol=tolerance)
    rows = np.zeros((rank + 1, len(first)))
    rows[0] = top
    rows[1:, order - 1] = np.triu(pivoted)[:rank]
    return SmallSample(rows, np.append(length, np.zeros(rank)), tolerance)


def from_votes(parts: Iterable[Part]) -> SmallSample:
    """The small sample without squaring anything, for margins of any size: rows that are orthogonal.

    The triangle of the QR factors of [V, sqrt(p) y], V the votes scaled by the roots of the shares, taken part by part,
    and its singular value decomposition.
    """
    triangle: Any = None
    for votes, labels, shares in parts:
        both = np.column_stack([np.asarray(votes, float), labels]) * np.sqrt(shares)[:, None]
        triangle = np.linalg.qr(both if triangle is None else np.concatenate([triangle, both]), "r")
    left, singular, right = np.linalg.svd(triangle[:, :-1], full_matrices=False)
    kept = singular > _NOTHING * max(singular[0], np.finfo(float).tiny)
    return SmallSample(singular[kept, None] * right[kept], left[:, kept].T @ triangle[:, -1])
