"""Labels and votes of more than two classes, each against the rest. Host code; not in the paper.

Each class has a vote of its own against the rest, and the class with the largest vote is the prediction. Labels of c
classes are c rows of labels in {-1, +1}, and each row is a problem of its own. Votes, matchings and moved points do not
depend on the labels: the classes share them.

In each row the class weighs as much as all others together: else the rest would outvote each of ten equal classes.
The vote of a class is divided by its first moment mu_c, so that all votes have one scale, and the largest is the
prediction. By how much a class is ahead of the best other one is above 0 exactly where it is predicted, and so stands
for a vote of two classes, this one and the rest, wherever a grid is judged: a point whose prediction is wrong is wrong
for two classes, so that half the sum of these risks is the risk of the prediction.
"""

from typing import Any

import numpy as np

from pvmincq_jax._checks import are_class_numbers

__all__: list[str] = []


def one_against_rest(numbers: np.ndarray, count: int) -> np.ndarray:
    """Labels of each class against the rest ``[c, m]`` in {-1, +1}, from class numbers ``[m]``.

    Example:
      >>> one_against_rest(np.array([0, 2, 1]), 3)
      array([[ 1., -1., -1.],
             [-1., -1.,  1.],
             [-1.,  1., -1.]])
    """
    return np.where(numbers == np.arange(count)[:, None], 1.0, -1.0)


def labels_by_class(labels: np.ndarray) -> np.ndarray:
    """Labels of two classes as they are ``[m]``, or of each of more against the rest ``[c, m]``, from their numbers.

    Example:
      >>> labels_by_class(np.array([1.0, -1.0])), labels_by_class(np.array([0.0, 2.0, 1.0])).shape
      (array([ 1., -1.]), (3, 3))
    """
    if not are_class_numbers(labels):
        return labels
    return one_against_rest(labels, int(np.max(labels)) + 1).astype(labels.dtype)


def class_numbers(labels: np.ndarray) -> np.ndarray:
    """What tells the classes apart ``[m]``: labels of two classes themselves, or the number of the row that has +1.

    Example:
      >>> class_numbers(np.array([1.0, -1.0])), class_numbers(np.array([[1.0, -1.0], [-1.0, -1.0], [-1.0, 1.0]]))
      (array([ 1., -1.]), array([0, 2]))
    """
    return labels if labels.ndim == 1 else np.argmax(labels, axis=0)


def mean_weights(labels: np.ndarray, weights: np.ndarray | float) -> np.ndarray:
    """The mean weight of the points of each class, and of all others, from labels ``[c, m]``: ``[2, c, 1]``.

    Example:
      >>> mean_weights(np.array([[1.0, -1.0, -1.0]]), np.array([1.0, 2.0, 4.0])).ravel()
      array([1., 3.])
    """
    sides = np.stack([labels > 0, labels <= 0])
    return np.sum(sides * weights, axis=-1, keepdims=True) / np.sum(sides, axis=-1, keepdims=True)


def balance_classes(labels: np.ndarray, weights: np.ndarray, sides: Any = (1.0, 1.0)) -> tuple[np.ndarray, np.ndarray]:
    """Labels and weights under which both sides of each row are equally heavy, or as the ``sides`` of `mean_weights`.

    With p = (1 + l) / 2 the share of the class in a label and P its mean, the point is of the class with weight
    w p / P / 2 and of the rest with w (1 - p) / (1 - P) / 2. The new weight is the sum of the two, the new label their
    difference over the sum, both ``[..., m]``. Where one side is empty, the other is all there is.

    Example:
      >>> labels, weights = balance_classes(np.array([1.0, -1.0, -1.0, 0.0]), np.array([1.0, 1.0, 1.0, 0.0]))
      >>> labels, weights
      (array([ 1., -1., -1.,  0.]), array([1.5 , 0.75, 0.75, 0.  ]))
    """
    masses = weights * (1 + labels) / 2, weights * (1 - labels) / 2
    total = np.sum(weights, axis=-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        members, rest = (
            np.nan_to_num(mass * total / np.sum(mass, axis=-1, keepdims=True)) / 2 * heavy
            for mass, heavy in zip(masses, sides)
        )
        return np.where(members + rest > 0, (members - rest) / (members + rest), 0.0), members + rest


def ahead(values: np.ndarray) -> np.ndarray:
    """How far each class is ahead of the best other one ``[c, ...]``: above 0 for the largest vote, below 0 for others.

    Of equal votes the first class has the largest, as in a prediction. NaN for all classes where one is not a number.

    Example:
      >>> ahead(np.array([[0.5, 0.0], [0.2, -0.5], [-0.4, -0.1]]))
      array([[ 0.3,  0.1],
             [-0.3, -0.5],
             [-0.9, -0.1]])
    """
    second, best = np.partition(values, len(values) - 2, axis=0)[-2:]
    largest = np.arange(len(values)).reshape(-1, *[1] * (values.ndim - 1)) == np.argmax(values, axis=0)
    least = np.finfo(values.dtype).tiny
    # Smallest numbers in place of 0: there is a prediction where votes are equal, too.
    lead = np.where(largest, np.maximum(best - second, least), np.minimum(values - best, -least))
    return np.where(np.any(np.isnan(values), axis=0), np.nan, lead)
