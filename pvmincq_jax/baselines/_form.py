"""What the comparison methods share: checked input in canonical order, and kernel expansions as models."""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pvmincq_jax._checks import check_points, check_positive, check_same_dimension
from pvmincq_jax._samples import Sample, prepare
from pvmincq_jax._types import ArrayLike
from pvmincq_jax.voting.voters import gaussian_votes as rbf_kernel

__all__: list[str] = []

# Numbers in a kernel matrix that is kept, 2 MB.
_FEW = 1 << 18


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
    """The parameters as the method's NamedTuple, given as one or as a mapping; all above 0, a margin at most 1."""
    fields: Any = kind._fields  # type: ignore[attr-defined]
    read = kind(**params) if isinstance(params, Mapping) and set(params) == set(fields) else params
    if not isinstance(read, kind):
        raise ValueError(f"params must be a {kind.__name__} or a mapping of {', '.join(fields)}; it is {params!r}")
    for name, value in read._asdict().items():  # type: ignore[attr-defined]
        check_positive(f"params.{name}", value)
        if name == "margin" and value > 1:
            raise ValueError(f"params.margin is a fraction of mu_max and must be in (0, 1]; it is {value:g}")
    return read


def both_domains(sample: Sample) -> np.ndarray:
    """Source points, then target points."""
    return np.concatenate([sample.source, sample.target])


def make_grid(kind: type, **values: Sequence[float]) -> list[Any]:
    """All combinations of the values; the parameter named first changes last."""
    return [kind(**dict(zip(values, point))) for point in itertools.product(*values.values())]


def each_sample(source: ArrayLike, source_labels: ArrayLike, target: ArrayLike, count: int) -> list[Sample]:
    """The task of each of ``count`` points of a grid, whose labels are ``[m_s]``, or ``[g, m_s]`` with their own."""
    labels = np.asarray(source_labels, dtype=float)
    different, own = np.unique(np.atleast_2d(labels), axis=0, return_inverse=True)
    samples = [prepare(source, row, target) for row in different]
    return [samples[k] for k in np.broadcast_to(own.ravel(), count)]


def read_grid(
    kind: type, source: ArrayLike, source_labels: ArrayLike, target: ArrayLike, grid: Sequence[Any]
) -> tuple[list[Any], list[Sample]]:
    """The parameters of a grid, read, and the task of each."""
    return [read_params(kind, params) for params in grid], each_sample(source, source_labels, target, len(grid))


def by_gamma(grid: Sequence[Any], fit_rows: Callable[[list[int]], Iterable[Any]]) -> list[Any]:
    """Fits the points of a grid gamma by gamma: ``fit_rows`` gets the numbers of those that share one."""
    models: dict[int, Any] = {}
    for gamma in dict.fromkeys(params.gamma for params in grid):
        rows = [row for row, params in enumerate(grid) if params.gamma == gamma]
        models.update(zip(rows, fit_rows(rows)))
    return [models[row] for row in range(len(grid))]


def on_kernels(
    grid: Sequence[Any],
    samples: Sequence[Sample],
    points_of: Callable[[Sample], np.ndarray],
    fit_one: Callable[[Sample, np.ndarray, np.ndarray, Any], Any],
) -> list[Any]:
    """``fit_one(sample, points, kernel, params)`` at all points of a grid, with one kernel matrix for each gamma."""

    def fit_rows(rows: list[int]) -> Iterator[Any]:
        points = points_of(samples[rows[0]])
        kernel = rbf_kernel(points, points, grid[rows[0]].gamma)
        return (fit_one(samples[row], points, kernel, grid[row]) for row in rows)

    return by_gamma(grid, fit_rows)


def decision(model: Any, x: ArrayLike) -> np.ndarray:
    """The values of a fitted method at new points, whose sign is the class (section 4).

    f(x) = sum_j w_j exp(-gamma |x - c_j|^2) + b.

    Args:
      model: of any method's ``fit``.
      x: ``[m, d]``.

    Returns: ``[m]``.

    Example:
      >>> decision(KernelModel(np.array([[0.0]]), np.array([2.0]), np.array(-1.0), np.array(1.0)), np.array([[0.0]]))
      array([1.])
    """
    kernel = getattr(model, "kernel", model)
    check_points("x", x)
    check_same_dimension("x", x, "the training sample", kernel.centers)
    points, centers, gamma = np.asarray(x, dtype=float), kernel.centers, float(kernel.gamma)
    if len(points) * len(centers) <= _FEW:
        votes = _kept_kernel(points.tobytes(), centers.tobytes(), points.shape[1], gamma)
    else:
        votes = rbf_kernel(points, centers, gamma)
    return votes @ kernel.weights + kernel.bias


@functools.lru_cache(maxsize=8)
def _kept_kernel(x: bytes, centers: bytes, features: int, gamma: float) -> np.ndarray:
    """The models of a grid are asked about the same points one after the other, and share their centres and gammas."""
    points, seats = (np.frombuffer(rows).reshape(-1, features) for rows in (x, centers))
    return rbf_kernel(points, seats, gamma)
