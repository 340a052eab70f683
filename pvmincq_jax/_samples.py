"""Samples, folds and rows that depend on the coordinates and the seed, never on the order of the rows.

What is drawn follows the order of the coordinates: swapped, negated or rotated columns give other draws, as another
seed does.
"""

from typing import NamedTuple

import numpy as np

from pvmincq_jax._checks import check_count, check_points, check_seed, read_task
from pvmincq_jax._distances import squared_distances
from pvmincq_jax._types import ArrayLike

__all__: list[str] = []

# Points up to which all distances between them are kept at once, 32 MB.
_FEW = 2000


class Sample(NamedTuple):
    """A task's arrays, checked, in float64 and in canonical order.

    Attributes:
      source: ``[m_s, d]``.
      labels: ``[m_s]``.
      target: ``[m_t, d]``.
      target_order: the caller's row of each target row ``[m_t]``.
    """

    source: np.ndarray
    labels: np.ndarray
    target: np.ndarray
    target_order: np.ndarray

    def as_given(self, values: np.ndarray) -> np.ndarray:
        """Numbers of the target points ``[m_t]``, in the caller's row order."""
        return values[np.argsort(self.target_order)]


def canonical_order(points: np.ndarray, labels: np.ndarray | None = None) -> np.ndarray:
    """The order of the rows by first coordinate, then second, and so on; equal points by label.

    Rows that are equal in all of it are interchangeable, so whatever is computed in this order is blind to the order
    in which the rows came.

    Example:
      >>> canonical_order(np.array([[2.0, 0.0], [1.0, 5.0], [1.0, 3.0]]))
      array([2, 1, 0])
    """
    columns = [*points.T] if labels is None else [*points.T, labels]
    # The first few columns decide, as a rule. Sorting compares numbers, so -0 and 0 tie.
    for count in (1, 8, 64):
        first = columns[:count]
        order = np.lexsort(first[::-1])
        if count < len(columns) and not np.any(np.all([np.diff(column[order]) == 0 for column in first], axis=0)):
            return order
    return np.lexsort(columns[::-1])


def prepare(source: ArrayLike, source_labels: ArrayLike, target: ArrayLike) -> Sample:
    """Checks a task and puts its rows into canonical order; labels may be numbers from 0 of more than two classes."""
    task = read_task(source, source_labels, target, classes=True)
    source, labels, target = (np.asarray(one, float) for one in task)
    source_order, target_order = canonical_order(source, labels), canonical_order(target)
    return Sample(source[source_order], labels[source_order], target[target_order], target_order)


def fold_numbers(points: np.ndarray, labels: np.ndarray | None, folds: int, seed: int) -> np.ndarray:
    """Deals the rows of a sample into folds of equal size, and of equal class ratio where there are labels.

    Returns: the fold of each row ``[m]``, which follows the row when rows are permuted.

    Example:
      >>> points = np.arange(6.0)[:, None]
      >>> folds = fold_numbers(points, None, 3, seed=0)
      >>> np.bincount(folds), bool(np.all(fold_numbers(points[::-1], None, 3, seed=0) == folds[::-1]))
      (array([2, 2, 2]), True)
    """
    classes = np.zeros(points.shape[0]) if labels is None else labels
    rng, order = np.random.default_rng(check_seed("seed", seed)), canonical_order(points)
    shuffled = [rng.permutation(order[classes[order] == value]) for value in np.unique(classes)]
    # Dealing on from one class to the next keeps the folds' sizes within one of each other.
    numbers = np.empty(points.shape[0], dtype=int)
    numbers[np.concatenate(shuffled)] = np.arange(points.shape[0]) % folds
    return numbers


def everybody_and_folds(points: np.ndarray, labels: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """Who learns: everybody, then all but one fold after the other ``[1 + folds, m]``; 0 folds for no validation."""
    numbers = fold_numbers(points, labels, max(folds, 1), seed)
    return np.concatenate([np.ones((1, len(labels)), bool), numbers != np.arange(folds)[:, None]])


def spread_rows(points: np.ndarray, most: int, seed: int) -> np.ndarray:
    """Rows of a sample that stand for all of it, spread over it as k-means++ starts.

    The first is drawn evenly, each next one in proportion to its squared distance from the nearest of those before it.
    No two of them coincide. A shorter list is the beginning of a longer one.

    Returns:
      Row numbers ``[n]``, in the order in which they were drawn; all of them, in their own order, if m <= most. The
      points that they name do not depend on the order of the rows.

    Example:
      >>> points = np.array([[0.0], [0.1], [5.0], [5.1]])
      >>> points[spread_rows(points, 2, seed=0)].round().ravel(), spread_rows(points, 4, seed=0)
      (array([5., 0.]), array([0, 1, 2, 3]))
    """
    if len(points) <= check_count("most", most, 1):
        return np.arange(len(points))
    order = canonical_order(points)
    places = points[order]
    rng = np.random.default_rng(seed)
    chosen, nearest = [int(rng.integers(len(places)))], np.full(len(places), np.inf)
    # All distances at once are a product of matrices; of many points, they are taken as they are needed.
    between = squared_distances(places, places) if len(places) <= _FEW else None
    while True:
        last = chosen[-1:]
        from_last = squared_distances(places, places[last]) if between is None else between[:, last]
        nearest = np.minimum(nearest, from_last[:, 0])
        if len(chosen) == most or not np.any(nearest > 0):
            return order[chosen]
        up_to = np.cumsum(nearest / np.max(nearest))
        chosen.append(int(np.searchsorted(up_to, rng.random() * up_to[-1], side="right")))


def part_rows(points: np.ndarray, most: int, seed: int, labels: np.ndarray | None = None) -> np.ndarray:
    """At most so many rows of a sample, at random and in increasing order, with the classes in their shares.

    Returns: row numbers ``[n]``; the points that they name do not depend on the order of the rows.

    Example:
      >>> labels = np.repeat([0, 1], [30, 10])
      >>> rows = part_rows(np.arange(40.0)[:, None], 8, 0, labels)
      >>> np.bincount(labels[rows])
      array([6, 2])
    """
    if len(points) <= check_count("most_points", most, 1):
        return np.arange(len(points))
    # Folds of so many parts, of which one is taken.
    parts = -(-len(points) // most)
    return np.flatnonzero(fold_numbers(points, labels, parts, seed) == 0)


def check_folds(folds: int, *sizes: int) -> None:
    """At least two folds, and no fold without a point of each class."""
    if min(sizes) < 2:
        raise ValueError(
            f"folds need at least 2 points of each class and sample; the smallest has {min(sizes)}. Leave the class "
            "out, or choose radius, margin and gamma yourself, as pv_mincq takes them"
        )
    if not 2 <= check_count("folds", folds, 0) <= min(sizes):
        raise ValueError(
            f"folds must be at least 2 and at most the smallest class or sample ({min(sizes)}); it is {folds}"
        )


def even_rows(points: ArrayLike, size: int, *, seed: int = 0, labels: ArrayLike | None = None) -> np.ndarray:
    """Rows that repeat a sample until it has a given size: every point equally often, or once more (not in the paper).

    With ``target[even_rows(target, len(source))]`` in place of a smaller target, a matching may pair each target point
    as many times as it is repeated, PV can reach 0, and a perfect matching uses the whole source. Which points are
    repeated once more is drawn at random.

    Each point has one partner at most, so of samples of unequal size the larger cannot be matched whole, and maximum
    matchings choose the part of it that is nearest to the smaller sample. Where the domains lie apart that is one end
    of the larger sample, the same in all draws and at all radii, and what the rest could teach is lost.

    Args:
      points: ``[m, d]``.
      size: how many rows; a sample that has as many or more is left as it is.
      seed: of the draw.
      labels: ``[m]``, to tell coinciding points apart, or None.

    Returns: row numbers ``[max(m, size)]``. Permuting the rows of the sample does not change which points are repeated.

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
    more = np.random.default_rng(check_seed("seed", seed)).permutation(count)[: size % count]
    return np.concatenate([np.tile(np.arange(count), size // count), np.sort(order[more])])


def class_rows(
    points: ArrayLike, labels: ArrayLike, size: int, shares: dict[float, float], *, seed: int = 0
) -> np.ndarray:
    """Rows of a labelled sample in which each class has a given share: points are repeated, or left out at random.

    Not in the paper.

    Args:
      points: ``[m, d]``.
      labels: ``[m]``.
      size: how many rows.
      shares: of the classes, by label; they add up to 1.
      seed: of the draw.

    Returns:
      Row numbers ``[size]``, in increasing order; at least one of each class. Permuting the rows of the sample does not
      change which points are taken.

    Example:
      >>> x, y = np.array([[3.0], [5.0], [7.0], [9.0]]), np.array([1.0, 1.0, -1.0, -1.0])
      >>> y[class_rows(x, y, 5, {1.0: 0.2, -1.0: 0.8})]
      array([ 1., -1., -1., -1., -1.])
    """
    check_points("points", points)
    points, labels = np.asarray(points), np.asarray(labels)
    if set(np.unique(labels)) != set(shares) or not np.isclose(sum(shares.values()), 1) or min(shares.values()) <= 0:
        raise ValueError(f"shares must give each class of labels a number above 0, with sum 1; they are {shares}")
    taken, left = [], check_count("size", size, len(shares))
    for place, (label, share) in enumerate(sorted(shares.items())):
        rest = len(shares) - place - 1
        count = min(max(1, round(share * size)), left - rest) if rest else left
        rows = np.flatnonzero(labels == label)
        rows = rows[canonical_order(points[rows])]
        some = np.random.default_rng([check_seed("seed", seed), place]).permutation(rows)[: count % rows.size]
        taken += [np.tile(rows, count // rows.size), some]
        left -= count
    return np.sort(np.concatenate(taken))
