"""What the comparison methods share: checked input in canonical order, and kernel expansions as models."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.distance import cdist

from pvmincq_jax._checks import check_labels, check_points, check_positive, check_same_dimension
from pvmincq_jax._types import ArrayLike

__all__ = ["KernelModel", "Sample", "canonical_order", "kernel_decision", "prepare", "rbf_kernel", "read_params"]


class KernelModel(NamedTuple):
    """f(x) = sum_j w_j exp(-gamma |x - c_j|^2) + b.

    Attributes:
      centers: training points in canonical order ``[n, d]``, those of weight 0 too.
      weights: ``[n]``.
      bias: scalar.
      gamma: scalar.
    """

    centers: np.ndarray
    weights: np.ndarray
    bias: np.ndarray
    gamma: np.ndarray


class Sample(NamedTuple):
    """A task's arrays, checked, in float64 and in canonical order.

    Attributes:
      source: ``[m_s, d]``.
      labels: ``[m_s]``.
      target: ``[m_t, d]``.
      source_order: the caller's row of each source row ``[m_s]``.
      target_order: the caller's row of each target row ``[m_t]``.
    """

    source: np.ndarray
    labels: np.ndarray
    target: np.ndarray
    source_order: np.ndarray
    target_order: np.ndarray


def canonical_order(points: np.ndarray, labels: np.ndarray | None = None) -> np.ndarray:
    """The order of the rows by first coordinate, then second, and so on; equal points by label.

    Rows that are equal in all of it are interchangeable, so whatever is computed in this order is blind to the order
    in which the rows came.

    Args:
      points: ``[m, d]``.
      labels: ``[m]`` or None.

    Returns:
      Row numbers ``[m]``.

    Example:
      >>> canonical_order(np.array([[2.0, 0.0], [1.0, 5.0], [1.0, 3.0]]))
      array([2, 1, 0])
    """
    columns = [*points.T] if labels is None else [*points.T, labels]
    return np.lexsort(columns[::-1])


def prepare(source: ArrayLike, labels: ArrayLike, target: ArrayLike) -> Sample:
    """Checks a task and puts its rows into canonical order.

    Args:
      source: ``[m_s, d]``.
      labels: ``[m_s]`` in {-1, +1}, both classes present.
      target: ``[m_t, d]``.

    Returns:
      A `Sample`.
    """
    check_points("source", source)
    check_points("target", target)
    check_same_dimension("source", source, "target", target)
    check_labels("labels", labels, np.shape(source)[0], soft=False, both_classes=True)
    source, target = np.asarray(source, dtype=float), np.asarray(target, dtype=float)
    labels = np.asarray(labels, dtype=float)
    source_order, target_order = canonical_order(source, labels), canonical_order(target)
    return Sample(source[source_order], labels[source_order], target[target_order], source_order, target_order)


def read_params(kind: type, params: Any) -> Any:
    """The parameters as the method's NamedTuple, given as one or as a mapping; every field finite and above 0."""
    read = kind(**params) if isinstance(params, Mapping) else params
    if not isinstance(read, kind):
        raise ValueError(f"params must be a {kind.__name__} or a mapping of its fields; it is {params!r}")
    for name, value in read._asdict().items():  # type: ignore[attr-defined]
        check_positive(f"params.{name}", value)
    return read


def rbf_kernel(x: np.ndarray, centers: np.ndarray, gamma: float) -> np.ndarray:
    """exp(-gamma |x_i - c_j|^2) in NumPy's float64 ``[m, n]``: `rbf_votes` would follow JAX's precision."""
    return np.exp(-gamma * cdist(x, centers, "sqeuclidean"))


def kernel_decision(model: KernelModel, x: ArrayLike) -> np.ndarray:
    """The values of a kernel expansion, whose sign is the class.

    Args:
      model: the expansion.
      x: ``[m, d]``.

    Returns:
      ``[m]``.
    """
    check_points("x", x)
    check_same_dimension("x", x, "the training sample", model.centers)
    return rbf_kernel(np.asarray(x, dtype=float), model.centers, float(model.gamma)) @ model.weights + model.bias
