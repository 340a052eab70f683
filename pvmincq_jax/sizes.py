"""Samples of unequal size, made even before they are matched.

Each point has one partner at most, so the larger sample cannot be matched whole, and maximum matchings choose which
part of it is: the part nearest to the smaller sample. Where the domains lie apart that is one end of the larger sample,
the same in all draws and at all radii, and what the rest could teach is lost. The paper's samples are of one size.
"""

import numpy as np

from pvmincq_jax._checks import check_points
from pvmincq_jax._folds import canonical_order
from pvmincq_jax._types import ArrayLike
from pvmincq_jax.matching import check_count

__all__ = ["even_rows"]


def even_rows(points: ArrayLike, size: int, *, seed: int = 0, labels: ArrayLike | None = None) -> np.ndarray:
    """Rows that repeat a sample until it has a given size: every point equally often, or once more.

    With ``target[even_rows(target, len(source))]`` in place of a smaller target, a matching may pair each target point
    as many times as it is repeated, PV can reach 0, and a perfect matching uses the whole source. Which points are
    repeated once more is drawn at random.

    Args:
      points: ``[m, d]``.
      size: how many rows; a sample that has as many or more is left as it is.
      seed: of the draw.
      labels: ``[m]``, to tell coinciding points apart, or None.

    Returns:
      Row numbers ``[max(m, size)]``. Permuting the rows of the sample does not change which points are repeated.

    Example:
      >>> even_rows(np.array([[3.0], [5.0]]), 4)
      array([0, 1, 0, 1])
      >>> np.bincount(even_rows(np.array([[3.0], [5.0], [7.0]]), 7)).tolist() in ([3, 2, 2], [2, 3, 2], [2, 2, 3])
      True
    """
    check_points("points", points)
    size, count = check_count("size", size, 1), np.shape(points)[0]
    if size <= count:
        return np.arange(count)
    order = canonical_order(np.asarray(points), None if labels is None else np.asarray(labels))
    more = np.random.default_rng(check_count("seed", seed, 0)).permutation(count)[: size % count]
    return np.concatenate([np.tile(np.arange(count), size // count), np.sort(order[more])])
