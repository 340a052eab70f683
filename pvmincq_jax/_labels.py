"""Labels and domains of rows as scikit-learn's faces are told them, and votes as probabilities of the classes.

Probabilities are on a calibrated scale, or as the Gibbs classifier would answer.
"""

from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from pvmincq_jax._checks import check_finite, check_length, check_real

__all__: list[str] = []

# Between which powers of e the scale is looked for, in units of the mean size of a vote.
_POWERS = (-8.0, 8.0)
# Log-odds are cut where 1 - p is 1e-9; and the class that is predicted is ahead by what double precision can tell.
_SUREST, _AHEAD = 20.7, 1e-12


def names_of(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """The classes that labels of `signs` stand for ``[m]``."""
    return classes[(labels > 0 if len(classes) == 2 else labels).astype(int)]


def class_names(name: str, labels: Any, length: int) -> tuple[np.ndarray, np.ndarray]:
    """The classes in order ``[c]``, two or more, and the number of that of each point ``[m]``; labels may be text."""
    check_length(name, labels, length, "sample point")
    array = np.asarray(labels)
    if np.issubdtype(array.dtype, np.number):
        check_finite(name, array)
    try:
        classes, numbers = np.unique(array, return_inverse=True)
    except TypeError:
        raise ValueError(f"{name} must be all numbers or all text; they are {labels!r}") from None
    if classes.size < 2:
        raise ValueError(f"{name} must hold two classes or more; every label is {classes[0]}")
    return classes, numbers


def taken(y: Any, rows: np.ndarray) -> Any:
    """Labels of some rows, bool ``[m]``; taken before they are one array, which text or NaN in others would change."""
    return [label for label, kept in zip(y, rows) if kept] if isinstance(y, list | tuple) else np.asarray(y)[rows]


def read_domain(sample_domain: Any, count: int) -> np.ndarray:
    """The domain of each row ``[m]``, from one for each or one for all."""
    domain = np.asarray(check_real("sample_domain", [sample_domain])[0])
    if domain.ndim and domain.shape != (count,):
        raise ValueError(f"sample_domain must have one entry per row of X ({count}); its shape is {domain.shape}")
    if not np.issubdtype(domain.dtype, np.number) or np.any(np.isnan(domain)):
        raise ValueError("sample_domain must hold numbers: 0 or above for source rows, below 0 for target rows")
    return np.broadcast_to(domain, (count,))


def source_part(y: Any, sample_domain: Any, count: int) -> tuple[np.ndarray, Any]:
    """Which rows are of the source, those with a domain of 0 or more, bool ``[m]``; and the labels of these."""
    source = read_domain(sample_domain, count) >= 0
    for rows, name, rule in ((source, "source", "0 or above"), (~source, "target", "below 0")):
        if not np.any(rows):
            raise ValueError(
                f"sample_domain names no {name} row ({rule}): adaptation needs both domains. For one domain, leave "
                "sample_domain out"
            )
    if y is None or np.shape(y)[:1] != (count,):
        raise ValueError(
            f"y must have one entry per row of X ({count}), whatever it is for target rows; its shape is {np.shape(y)}"
        )
    return source, taken(y, source)


def predicted_numbers(votes: np.ndarray) -> np.ndarray:
    """The number of the class that votes ``[m]`` or ``[m, c]`` are for; the first one where they balance."""
    return (votes > 0).astype(int) if votes.ndim == 1 else np.argmax(votes, axis=1)


def _logits(votes: np.ndarray) -> np.ndarray:
    """One for each class ``[m, c]``: -f / 2 and f / 2 of two classes."""
    return np.stack([-votes, votes], axis=1) / 2 if votes.ndim == 1 else votes


def probability_scale(votes: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> float:
    """The a of least log loss of softmax(a f) on a labelled sample: Platt's scaling, without an offset.

    A label l is a share t = (1 + l) / 2 of its class, smoothed as in Platt's to (n t + 2 / c) / (n + 2), where a class
    has n points on average: a sample without a wrong vote would else have no finite scale.

    Args:
      votes: ``[m]``, or ``[m, c]`` of more than two classes.
      labels: ``[m]`` in [-1, 1], or of each class against the rest ``[c, m]``.
      weights: ``[m]``.

    Returns: a; 1 where all votes are 0.

    Example:
      >>> votes, labels = np.array([-0.1, 0.1, 0.1, 0.1]), np.array([-1.0, 1.0, 1.0, -1.0])
      >>> a = probability_scale(votes, labels, np.ones(4))  # three of four are right: p = 3/4, smoothed 5/8
      >>> print(round(1 / (1 + np.exp(-0.1 * a)), 3))
      0.625
    """
    size = float(np.mean(np.abs(votes)))
    if size == 0:
        return 1.0
    logits = _logits(votes) / size
    shares = (1 + (np.stack([-labels, labels], axis=1) if labels.ndim == 1 else labels.T)) / 2
    classes = shares.shape[1]
    count = np.sum(weights > 0) / classes
    targets = (weights / np.sum(weights))[:, None] * (count * shares + 2 / classes) / (count + 2)

    def loss(power: float) -> float:
        return -float(np.sum(targets * log_softmax(np.exp(power) * logits, axis=1)))

    return float(np.exp(minimize_scalar(loss, bounds=_POWERS, method="bounded").x)) / size


def probabilities(votes: np.ndarray, scale: float) -> np.ndarray:
    """softmax(a f) of votes ``[m]`` or ``[m, c]``: ``[m, c]``; the class predicted has the largest, and none is 0 or 1.

    Example:
      >>> probabilities(np.array([0.0, 0.2, 1e-30, 1.0]), 10.0).round(2)
      array([[0.5 , 0.5 ],
             [0.12, 0.88],
             [0.5 , 0.5 ],
             [0.  , 1.  ]])
    """
    logits = scale * _logits(votes)
    logits[np.arange(len(logits)), predicted_numbers(votes)] += _AHEAD
    return softmax(np.maximum(logits - np.max(logits, axis=1, keepdims=True), -_SUREST), axis=1)


def gibbs_probabilities(votes: np.ndarray) -> np.ndarray:
    """(1 - f) / 2 and (1 + f) / 2 of two classes; of more, (1 + f) / 2 divided by its sum over the classes: ``[m, c]``.

    Example:
      >>> gibbs_probabilities(np.array([0.0, 0.2]))
      array([[0.5, 0.5],
             [0.4, 0.6]])
    """
    # Weights at their bounds add up to 1 but for rounding.
    vote = np.clip(votes, -1.0, 1.0)
    if vote.ndim == 1:
        return np.stack([(1 - vote) / 2, (1 + vote) / 2], axis=1)
    total = np.sum(1 + vote, axis=1, keepdims=True)
    # No voter has anything to say for any class.
    return np.divide(1 + vote, total, out=np.full_like(vote, 1 / vote.shape[1]), where=total > 0)
