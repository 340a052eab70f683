"""PV-SVM: a support vector machine on the target points that perturbed variation labels.

The self-labelling is PV-MinCq's, one random maximum matching within a radius; a matched target point carries its
partner's label and the others are left out. The radius is given as a fraction of the bottleneck radius, the smallest
that matches the whole smaller sample, because useful ones lie around it whatever the data's scale. Where the domains
lie apart, the smallest fractions reach nobody; in a grid such a point has a PV of 1 and no values, and is never chosen.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pvmincq_jax._types import ArrayLike
from pvmincq_jax.baselines._form import KernelModel, Sample, decision, make_grid, prepare, rbf_kernel, read_params
from pvmincq_jax.baselines._svc import Expansion, weighted_svc
from pvmincq_jax.matching.curve import bottleneck_radius
from pvmincq_jax.matching.graph import space_graph
from pvmincq_jax.matching.matching import draw_matchings
from pvmincq_jax.matching.selflabel import SelfLabels, carry_labels
from pvmincq_jax.matching.space import make_space

__all__ = ["GRID", "VALIDATION", "PVSvmModel", "PVSvmParams", "decision", "fit", "fit_grid", "pv_grid"]


class PVSvmParams(NamedTuple):
    """Parameters of PV-SVM.

    Attributes:
      gamma: of the Gaussian kernel.
      cost: C, of a unit of slack.
      radius: as a fraction of the bottleneck radius.
    """

    gamma: float
    cost: float
    radius: float


class PVSvmModel(NamedTuple):
    """An SVM of the self-labelled target.

    Attributes:
      kernel: the classifier, over the target points.
      self_labels: in the caller's row order ``[m_t]``, 0 where unmatched.
      pv: the perturbed variation at the radius, for R_S + PV; scalar.
      radius: the distance itself, scalar.
    """

    kernel: KernelModel
    self_labels: np.ndarray
    pv: np.ndarray
    radius: np.ndarray


GRID = make_grid(
    PVSvmParams,
    cost=(0.1, 1.0, 10.0, 100.0),
    gamma=(0.5, 1.0, 2.0, 4.0, 8.0),
    radius=(0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1),
)
VALIDATION = "rs_pv"


def fit_grid(
    source: ArrayLike, source_labels: ArrayLike, target: ArrayLike, grid: Sequence[PVSvmParams | dict], seed: int = 0
) -> list[PVSvmModel]:
    """Trains the whole grid with one matching for each radius, so source_labels are the same for all (section 4).

    Args: source, source_labels, target, grid (`PVSvmParams`s), seed (of the matchings); see `pvmincq_jax.baselines`.

    Returns:
      A list of `PVSvmModel` ``[g]``. One whose radius leaves every point unmatched has a PV of 1, and its values are
      NaN.

    Example:
      >>> source, labels = np.array([[0.0], [1.0]]), np.array([-1, 1])
      >>> [float(model.pv) for model in fit_grid(source, labels, source + 0.1, GRID[6:9])]
      [1.0, 0.0, 0.0]
    """
    read = [read_params(PVSvmParams, params) for params in grid]
    sample, unit, found = _label(source, source_labels, target, read, seed)
    kernels: dict[float, np.ndarray] = {}
    models = []
    for gamma, cost, radius in read:
        if gamma not in kernels:
            kernels[gamma] = rbf_kernel(sample.target, sample.target, gamma)
        given = found[radius]
        if np.any(given.weights > 0):
            machine = weighted_svc(kernels[gamma], given.labels, cost * given.weights)
        else:
            machine = Expansion(np.full(len(given.labels), np.nan), float("nan"))
        kernel, self_labels = machine.over(sample.target, gamma), sample.as_given(given.labels)
        models.append(PVSvmModel(kernel, self_labels, np.asarray(given.pv), np.asarray(radius * unit)))
    return models


def _label(
    source: ArrayLike, source_labels: ArrayLike, target: ArrayLike, read: Sequence[PVSvmParams], seed: int
) -> tuple[Sample, float, dict[float, SelfLabels]]:
    """The checked task, the bottleneck radius, and the labels that a matching carries at each radius of the grid."""
    if np.ndim(source_labels) == 2:
        if not np.all(np.asarray(source_labels) == np.asarray(source_labels)[:1]):
            raise ValueError("source_labels must have equal rows: the matchings are shared by the grid")
        source_labels = np.asarray(source_labels)[0]
    sample = prepare(source, source_labels, target)
    unit = bottleneck_radius(sample.source, sample.target)
    space = make_space(sample.source, sample.target, ties=sample.labels)
    found = {}
    for radius in dict.fromkeys(params.radius for params in read):
        matching = draw_matchings(space_graph(space, radius * unit), 1, seed=seed)
        found[radius] = carry_labels(matching, sample.labels)
    return sample, unit, found


def pv_grid(
    source: ArrayLike, source_labels: ArrayLike, target: ArrayLike, grid: Sequence[PVSvmParams | dict], seed: int = 0
) -> np.ndarray:
    """The PV of each model of `fit_grid`, without training it (sections 3.1 and 3.4).

    Args: source, source_labels, target, grid (`PVSvmParams`s), seed (of the matchings); see `pvmincq_jax.baselines`.

    Returns: ``[g]``.

    Example:
      >>> source, labels = np.array([[0.0], [1.0]]), np.array([-1, 1])
      >>> pv_grid(source, labels, source + 0.1, GRID[6:9])
      array([1., 0., 0.])
    """
    read = [read_params(PVSvmParams, params) for params in grid]
    *_, found = _label(source, source_labels, target, read, seed)
    return np.array([float(found[params.radius].pv) for params in read])


def fit(
    source: ArrayLike, source_labels: ArrayLike, target: ArrayLike, params: PVSvmParams | dict, seed: int = 0
) -> PVSvmModel:
    """Carries labels over a maximum matching, and trains on the target points that got one (sections 3.2 and 4).

    Args: source, source_labels, target, params (`PVSvmParams`), seed (of the matching); see `pvmincq_jax.baselines`.

    Returns: `PVSvmModel`.

    Example:
      >>> source, labels = np.array([[0.0], [1.0]]), np.array([-1, 1])
      >>> model = fit(source, labels, np.array([[1.1], [0.1]]), PVSvmParams(1.0, 10.0, 1.1))
      >>> print(model.self_labels, model.pv)
      [ 1. -1.] 0.0
    """
    model = fit_grid(source, source_labels, target, [params], seed)[0]
    if model.pv == 1:
        raise ValueError(f"params.radius leaves every point unmatched: it is a distance of {model.radius:g}")
    return model
