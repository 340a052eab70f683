"""Samples and folds that depend on the points and the seed alone, never on the order of the rows."""

from typing import NamedTuple

import numpy as np

from pvmincq_jax._checks import check_count, check_length, check_points, check_same_dimension, check_task
from pvmincq_jax._types import ArrayLike

__all__: list[str] = []


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

    Args:
      points: ``[m, d]``.
      labels: ``[m]`` or None.

    Returns: row numbers ``[m]``.

    Example:
      >>> canonical_order(np.array([[2.0, 0.0], [1.0, 5.0], [1.0, 3.0]]))
      array([2, 1, 0])
    """
    columns = [*points.T] if labels is None else [*points.T, labels]
    # Sorting compares numbers, so -0 and 0 tie.
    return np.lexsort(columns[::-1])


def prepare(source: ArrayLike, source_labels: ArrayLike, target: ArrayLike) -> Sample:
    """Checks a task and puts its rows into canonical order.

    Args:
      source: ``[m_s, d]``.
      source_labels: ``[m_s]`` in {-1, +1}, both classes present; or numbers from 0 of more than two classes.
      target: ``[m_t, d]``.

    Returns: a `Sample`.
    """
    kinds = np.unique(source_labels)
    if kinds.size > 2 and np.array_equal(kinds, np.arange(kinds.size)):
        check_points("source", source)
        check_points("target", target)
        check_same_dimension("source", source, "target", target)
        check_length("source_labels", source_labels, np.shape(source)[0], "sample point")
    else:
        check_task(source, source_labels, target)
    source, target = np.asarray(source, dtype=float), np.asarray(target, dtype=float)
    labels = np.asarray(source_labels, dtype=float)
    here, there = canonical_order(source, labels), canonical_order(target)
    return Sample(source[here], labels[here], target[there], there)


def fold_numbers(points: np.ndarray, labels: np.ndarray | None, folds: int, seed: int) -> np.ndarray:
    """Deals the rows of a sample into folds of equal size, and of equal class ratio where there are labels.

    Args:
      points: ``[m, d]``.
      labels: ``[m]``, or None for an unlabelled sample.
      folds: how many.
      seed: of the shuffle.

    Returns: the fold of each row ``[m]``, which follows the row when rows are permuted.

    Example:
      >>> points = np.arange(6.0)[:, None]
      >>> folds = fold_numbers(points, None, 3, seed=0)
      >>> np.bincount(folds), bool(np.all(fold_numbers(points[::-1], None, 3, seed=0) == folds[::-1]))
      (array([2, 2, 2]), True)
    """
    classes = np.zeros(points.shape[0]) if labels is None else labels
    rng = np.random.default_rng(check_count("seed", seed, 0))
    shuffled = []
    for value in np.unique(classes):
        rows = np.flatnonzero(classes == value)
        rows = rows[canonical_order(points[rows])]
        shuffled.append(rng.permutation(rows))
    # Dealing on from one class to the next keeps the folds' sizes within one of each other.
    numbers = np.empty(points.shape[0], dtype=int)
    numbers[np.concatenate(shuffled)] = np.arange(points.shape[0]) % folds
    return numbers


def check_folds(folds: int, *sizes: int) -> None:
    """At least two folds, and no fold without a point of each class."""
    if not 2 <= check_count("folds", folds, 0) <= min(sizes):
        raise ValueError(
            f"folds must be at least 2 and at most the smallest class or sample ({min(sizes)}); it is {folds}"
        )
