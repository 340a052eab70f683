"""What the comparison methods share: checked input in canonical order, and kernel expansions as models."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pvmincq_jax._checks import check_points, check_positive, check_same_dimension
from pvmincq_jax._samples import Sample, canonical_order, prepare
from pvmincq_jax._types import ArrayLike
from pvmincq_jax.voting.voters import gaussian_votes

__all__ = [
    "KernelModel",
    "Sample",
    "by_gamma",
    "canonical_order",
    "each_sample",
    "kernel_decision",
    "prepare",
    "rbf_kernel",
    "read_params",
]


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


def read_params(kind: type, params: Any) -> Any:
    """The parameters as the method's NamedTuple, given as one or as a mapping; every field finite and above 0."""
    read = kind(**params) if isinstance(params, Mapping) else params
    if not isinstance(read, kind):
        raise ValueError(f"params must be a {kind.__name__} or a mapping of its fields; it is {params!r}")
    for name, value in read._asdict().items():  # type: ignore[attr-defined]
        check_positive(f"params.{name}", value)
    return read


def each_sample(source: ArrayLike, source_labels: ArrayLike, target: ArrayLike, count: int) -> list[Sample]:
    """The task of each of ``count`` points of a grid, whose labels are ``[m_s]``, or ``[g, m_s]`` with their own."""
    labels = np.asarray(source_labels, dtype=float)
    return [prepare(source, own, target) for own in np.broadcast_to(labels, (count, labels.shape[-1]))]


def by_gamma(grid: Sequence[Any], fit_rows: Callable[[list[int]], Iterable[Any]]) -> list[Any]:
    """Fits the points of a grid gamma by gamma: ``fit_rows`` gets the numbers of those that share one."""
    models: dict[int, Any] = {}
    for gamma in dict.fromkeys(params.gamma for params in grid):
        rows = [row for row, params in enumerate(grid) if params.gamma == gamma]
        models.update(zip(rows, fit_rows(rows)))
    return [models[row] for row in range(len(grid))]


def rbf_kernel(x: np.ndarray, centers: np.ndarray, gamma: float) -> np.ndarray:
    """exp(-gamma |x_i - c_j|^2) in NumPy's float64 ``[m, n]``, whatever JAX's configuration."""
    return gaussian_votes(x, centers, gamma)


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
