"""What the comparison methods share: checked input in canonical order, ``fit`` and ``fit_grid``, kernel expansions."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from pvmincq_jax._checks import check_points, check_positive, check_same_dimension
from pvmincq_jax._samples import Sample, prepare
from pvmincq_jax._types import ArrayLike
from pvmincq_jax.voting.voters import gaussian_votes as rbf_kernel

__all__: list[str] = []

Params = TypeVar("Params")
Model = TypeVar("Model")
# (samples [g], grid [g], seed) -> models [g]; the samples differ in nothing but their labels.
FitSamples = Callable[[list[Sample], list[Params], int], Iterable[Model]]


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


def expand(centers: np.ndarray, gamma: float, weights: np.ndarray, bias: float = 0.0) -> KernelModel:
    """A `KernelModel` of plain numbers."""
    return KernelModel(centers, weights, np.asarray(float(bias)), np.asarray(float(gamma)))


def make_fits(
    kind: type[Params], fit_samples: FitSamples[Params, Model]
) -> tuple[Callable[..., Model], Callable[..., list[Model]]]:
    """The two functions of a method that learn, from one that learns on prepared samples.

    Args:
      kind: the NamedTuple of its parameters.
      fit_samples: ``(samples, grid, seed) -> models``, for all points of a grid.

    Returns: ``fit`` and ``fit_grid``; see `pvmincq_jax.baselines`.

    Example:
      >>> from pvmincq_jax.baselines import svm
      >>> source, labels = np.array([[0.0], [1.0]]), np.array([-1, 1])
      >>> [model.weights.shape for model in svm.fit_grid(source, labels, source, svm.GRID[:2])]
      [(2,), (2,)]
      >>> print(np.sign(decision(svm.fit(source, labels, source, svm.SvmParams(1.0, 10.0)), [[0.2], [0.9]])))
      [-1.  1.]
    """

    def fit_grid(
        source: ArrayLike, source_labels: ArrayLike, target: ArrayLike, grid: Sequence[Any], seed: int = 0
    ) -> list[Model]:
        """Learns at all points of a grid, which share what they can (section 4).

        Args: source, source_labels, target, grid, seed; see `pvmincq_jax.baselines`.

        Returns: list of models ``[g]``.

        Example:
          >>> from pvmincq_jax.baselines import svm
          >>> source, labels = np.array([[0.0], [1.0]]), np.array([-1, 1])
          >>> [model.weights.shape for model in svm.fit_grid(source, labels, source, svm.GRID[:2])]
          [(2,), (2,)]
        """
        points = [read_params(kind, params) for params in grid]
        rows, numbers = np.unique(np.atleast_2d(np.asarray(source_labels, float)), axis=0, return_inverse=True)
        samples = [prepare(source, row, target) for row in rows]
        each = [samples[number] for number in np.broadcast_to(numbers.ravel(), len(points))]
        return list(fit_samples(each, points, seed))

    def fit(source: ArrayLike, source_labels: ArrayLike, target: ArrayLike, params: Any, seed: int = 0) -> Model:
        """Learns at one point of the grid (section 4).

        Args: source, source_labels, target, params, seed; see `pvmincq_jax.baselines`.

        Returns: the method's model.

        Example:
          >>> from pvmincq_jax.baselines import svm
          >>> source, labels = np.array([[0.0], [1.0]]), np.array([-1, 1])
          >>> print(np.sign(svm.decision(svm.fit(source, labels, source, svm.SvmParams(1.0, 10.0)), [[0.2], [0.9]])))
          [-1.  1.]
        """
        return fit_grid(source, source_labels, target, [params], seed)[0]

    return fit, fit_grid


def both_domains(sample: Sample) -> np.ndarray:
    """Source points, then target points."""
    return np.concatenate([sample.source, sample.target])


def on_kernels(
    train: Callable[[Sample, np.ndarray, Any, Params], Model],
    points_of: Callable[[Sample], np.ndarray] = both_domains,
    factor: Callable[[np.ndarray], Any] = lambda kernel: kernel,
) -> FitSamples[Params, Model]:
    """Learns by ``train(sample, points, factor(kernel), params)``, with one kernel matrix of the points a gamma."""

    def fit_samples(samples: list[Sample], grid: list[Any], seed: int) -> list[Model]:
        points = points_of(samples[0])
        gammas = dict.fromkeys(params.gamma for params in grid)
        factored = {gamma: factor(rbf_kernel(points, points, gamma)) for gamma in gammas}
        return [train(sample, points, factored[params.gamma], params) for sample, params in zip(samples, grid)]

    return fit_samples


def read_params(kind: type[Params], params: Any) -> Params:
    """The parameters as the method's NamedTuple, given as one or as a mapping; all above 0."""
    fields: Any = kind._fields  # type: ignore[attr-defined]
    read = kind(**params) if isinstance(params, Mapping) and set(params) == set(fields) else params
    if not isinstance(read, kind):
        raise ValueError(f"params must be a {kind.__name__} or a mapping of {', '.join(fields)}; it is {params!r}")
    for name, value in read._asdict().items():  # type: ignore[attr-defined]
        check_positive(f"params.{name}", value)
    return read


def make_grid(kind: type[Params], **values: Sequence[float]) -> list[Params]:
    """All combinations of the values; the parameter named first changes last."""
    return [kind(**dict(zip(values, point))) for point in itertools.product(*values.values())]


def decision(model: Any, x: ArrayLike) -> np.ndarray:
    """The values of a fitted method at new points, whose sign is the class (section 4).

    f(x) = sum_j w_j exp(-gamma |x - c_j|^2) + b.

    Args:
      model: of any method's ``fit``.
      x: ``[m, d]``.

    Returns: ``[m]``.

    Example:
      >>> decision(expand(np.array([[0.0]]), 1.0, np.array([2.0]), -1.0), np.array([[0.0]]))
      array([1.])
    """
    kernel = getattr(model, "kernel", model)
    check_points("x", x)
    check_same_dimension("x", x, "the training sample", kernel.centers)
    return rbf_kernel(np.asarray(x, dtype=float), kernel.centers, float(kernel.gamma)) @ kernel.weights + kernel.bias
