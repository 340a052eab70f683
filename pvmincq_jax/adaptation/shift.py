"""What has changed between two domains, told without target labels. Not in the paper.

The first question is whether the class ratio alone explains the target: then nothing has to move.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from pvmincq_jax._checks import check_count, check_length, check_samples
from pvmincq_jax._distances import squared_distances
from pvmincq_jax._samples import canonical_order
from pvmincq_jax._types import ArrayLike

__all__ = ["LabelShift", "label_shift"]

# Points of a domain that are looked at, 8 MB of distances; of a larger sample, so many are drawn.
_MOST_POINTS = 1000


class LabelShift(NamedTuple):
    """What `label_shift` returns.

    Attributes:
      shares: of the classes in the target, in the order of their sorted labels ``[c]``; their sum is 1.
      distance: the squared energy distance of that mixture from the target, in the units of the features.
      p_value: how often a target that is such a mixture is as far away; small where something else has changed, too.
    """

    shares: np.ndarray
    distance: float
    p_value: float


def label_shift(
    source: ArrayLike, source_labels: ArrayLike, target: ArrayLike, *, draws: int = 200, seed: int = 0
) -> LabelShift:
    """The class shares under which the source looks most like the target, and a test of whether all else is equal.

    The squared energy distance between the target T and a mixture of the source's classes S_c with shares p,

        D(p) = 2 sum_c p_c E|S_c - T| - sum_cd p_c p_d E|S_c - S_d| - E|T - T'|,

    is a convex quadratic of p. Its minimum over the simplex gives the shares. It is 0, up to the draw, if and only if
    the target is a mixture of the source's classes. The p-value is that of a bootstrap: the source's classes are drawn
    from themselves and a target from the mixture found, and the minimum is computed anew.

    No unlabelled sample tells more: where the classes themselves have changed so that the target looks like another
    mixture of them, the test does not reject, and the shares are wrong.

    Of a target of more than 1 000 points 1 000 are looked at, and of such a source at most 1 000 / c of each class.
    Host code; the order of the rows does not matter. Not in the paper.

    Args:
      source, source_labels, target: ``[m_s, d]``, ``[m_s]`` of two classes or more, and ``[m_t, d]``.
      draws: of the bootstrap.
      seed: of the bootstrap and of the points that are looked at.

    Returns: a `LabelShift`.

    Example:
      >>> rng = np.random.default_rng(0)
      >>> labels = np.repeat([-1, 1], 60)
      >>> source, target = rng.normal(labels, 0.5)[:, None], rng.normal(np.repeat([-1, 1], [100, 20]), 0.5)[:, None]
      >>> ratio, moved = label_shift(source, labels, target), label_shift(source, labels, target + 1)
      >>> print(ratio.shares.round(1), ratio.p_value > 0.05, moved.p_value < 0.05)
      [0.9 0.1] True True
    """
    check_samples(source, target)
    check_length("source_labels", source_labels, np.shape(source)[0], "sample point")
    classes, numbers = np.unique(np.asarray(source_labels), return_inverse=True)
    if classes.size < 2:
        raise ValueError(f"source_labels must hold two classes or more; every label is {classes[0]}")
    draws = check_count("draws", draws, 1)
    rng = np.random.default_rng(check_count("seed", seed, 0))
    source, target = np.asarray(source, float), np.asarray(target, float)
    most = len(source) if len(source) <= _MOST_POINTS else _MOST_POINTS // classes.size
    rows = [_draw(source, np.flatnonzero(numbers == c), most, rng) for c in range(classes.size)]
    sizes, source = np.array([len(some) for some in rows]), source[np.concatenate(rows)]
    target = target[_draw(target, np.arange(len(target)), _MOST_POINTS, rng)]

    # Row c of `mixture` weighs the points of class c to the sum of 1.
    mixture = np.repeat(np.eye(classes.size), sizes, axis=1) / sizes[:, None]
    within = np.sqrt(squared_distances(source, source))
    across = mixture @ np.mean(np.sqrt(squared_distances(source, target)), axis=1)
    spread = np.mean(np.sqrt(squared_distances(target, target)))
    shares, distance = _nearest(mixture @ within @ mixture.T, across, spread)

    drawn = [rng.multinomial(size, np.full(size, 1 / size), size=draws) / size for size in sizes]
    mixtures = np.repeat(np.eye(classes.size), sizes, axis=1) * np.concatenate(drawn, axis=1)[:, None]
    targets = rng.multinomial(len(target), shares @ mixture, size=draws) / len(target)
    both = np.concatenate([mixtures, targets[:, None]], axis=1)
    means = (both.reshape(-1, len(source)) @ within).reshape(both.shape) @ both.swapaxes(1, 2)
    again = np.array([_nearest(one[:-1, :-1], one[-1, :-1], one[-1, -1])[1] for one in means])
    # Two draws of n points coincide once in n times, and two points of a domain never.
    again *= np.min(sizes) / max(np.min(sizes) - 1, 1)
    return LabelShift(shares, distance, float((1 + np.sum(again >= distance)) / (1 + draws)))


def _draw(points: np.ndarray, rows: np.ndarray, most: int, rng: np.random.Generator) -> np.ndarray:
    """At most so many of the rows of a sample, whatever their order."""
    rows = rows[canonical_order(points[rows])]
    return rows if len(rows) <= most else rng.permutation(rows)[: max(most, 1)]


def _nearest(classes: np.ndarray, across: np.ndarray, spread: float) -> tuple[np.ndarray, float]:
    """The shares of least distance D(p), and that distance, from mean distances.

    Between classes ``[c, c]``, of each class from the target ``[c]``, and between two points of the target. With
    G_cd = E|S_c - T| + E|S_d - T| - E|S_c - S_d| - E|T - T'|, a Gram matrix, D(p) = p'Gp on the simplex: its minimum is
    the point of the convex hull of c vectors that is nearest to the origin. Least squares with x >= 0 of the vectors'
    mean to 0 and of the sum of x to 1 ends in the direction of p, whatever the sum is.
    """
    gram = across[:, None] + across - classes - spread
    values, vectors = np.linalg.eigh(gram / (np.trace(gram) or 1.0))
    root = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
    found, _ = nnls(np.vstack([root, np.ones(len(gram))]), np.append(np.zeros(len(gram)), 1.0))
    shares = found / np.sum(found)
    return shares, float(max(shares @ gram @ shares, 0.0))
