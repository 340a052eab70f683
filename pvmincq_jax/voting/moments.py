"""A small sample with the moments of a larger one.

Of a sample MinCq knows no more than M = E h(x) h(x)' and m = E y h(x). Any rows R and labels q with R'R = M and
R'q = m are the same program, and their number is the rank of the votes, whatever the number of points. Both roads here
take the votes some points at a time, so that they need not fit in memory.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.lapack import dpstrf

__all__: list[str] = []

# The relative change of the second moment that rows left out may cause; 1e-7 counts as solved.
_DROPPED = 1e-8
# How many units in the last place of its largest entry M is known to, with room to spare.
_ROUNDED = 16
# Singular values below this, relative to the largest, are rounding.
_NOTHING = 1e-14


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
