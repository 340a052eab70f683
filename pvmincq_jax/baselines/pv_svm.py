"""PV-SVM: a support vector machine on the target points that perturbed variation labels.

The self-labelling is PV-MinCq's, one random maximum matching within a radius; a matched target point carries its
partner's label and the others are left out. The radius is given as a fraction of the bottleneck radius, the smallest
that matches the whole smaller sample, because useful ones lie around it whatever the data's scale. Where the domains
lie apart, the smallest fractions reach nobody; in a grid such a point has a PV of 1 and no values, and is never chosen.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pvmincq_jax._samples import Sample, prepare
from pvmincq_jax._types import ArrayLike
from pvmincq_jax.baselines._form import KernelModel, Method, decision, expand, make_grid, rbf_kernel, read_params
from pvmincq_jax.baselines.svm import weighted_svc
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


RADII = [tenths / 10 for tenths in range(3, 12)]
GRID = make_grid(PVSvmParams, cost=(0.1, 1.0, 10.0, 100.0), gamma=(0.5, 1.0, 2.0, 4.0, 8.0), radius=RADII)
VALIDATION = "rs_pv"


def _carried(sample: Sample, grid: Sequence[PVSvmParams], seed: int) -> tuple[float, dict[float, SelfLabels]]:
    """The bottleneck radius, and the labels that one matching carries at each radius of the grid (section 3.2)."""
    unit = bottleneck_radius(sample.source, sample.target)
    space = make_space(sample.source, sample.target, ties=sample.labels)
    carried = {}
    for radius in dict.fromkeys(params.radius for params in grid):
        matching = draw_matchings(space_graph(space, radius * unit), 1, seed=seed)
        carried[radius] = carry_labels(matching, sample.labels)
    return unit, carried


def _fit_samples(samples: list[Sample], grid: list[PVSvmParams], seed: int) -> Iterator[PVSvmModel]:
    """Machines of one matching for each radius and one kernel matrix for each gamma."""
    sample = samples[0]
    if any(other is not sample for other in samples):
        raise ValueError("source_labels must have equal rows: the matchings are shared by the grid")
    unit, carried = _carried(sample, grid, seed)
    kernels = {gamma: rbf_kernel(sample.target, sample.target, gamma) for gamma in {params.gamma for params in grid}}
    for gamma, cost, radius in grid:
        labels, label_weights, pv = carried[radius][:3]
        machine = np.full(len(labels), np.nan), np.nan
        if np.any(label_weights > 0):
            machine = weighted_svc(kernels[gamma], labels, cost * label_weights)
        kernel = expand(sample.target, gamma, *machine)
        yield PVSvmModel(kernel, sample.as_given(labels), np.asarray(pv), np.asarray(radius * unit))


_METHOD = Method(PVSvmParams, _fit_samples)
fit_grid = _METHOD.fit_grid


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
    model = _METHOD.fit(source, source_labels, target, params, seed)
    if model.pv == 1:
        raise ValueError(f"params.radius leaves every point unmatched: it is a distance of {model.radius:g}")
    return model


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
    points = [read_params(PVSvmParams, params) for params in grid]
    sample = prepare(source, np.atleast_2d(source_labels)[0], target)
    carried = _carried(sample, points, seed)[1]
    return np.array([float(carried[params.radius].pv) for params in points])
