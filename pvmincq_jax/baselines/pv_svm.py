"""PV-SVM: a support vector machine on the target points that perturbed variation labels.

The self-labelling is PV-MinCq's, one random maximum matching within a radius; a matched target point carries its
partner's label and the others are left out. The radius is given as a fraction of the bottleneck radius, the smallest
that matches the whole smaller sample, because useful ones lie around it whatever the data's scale. Where the domains
lie apart, the smallest fractions reach nobody; in a grid such a point has a PV of 1 and no values, and is never chosen.

Example:
  >>> source, labels = np.array([[0.0], [1.0]]), np.array([-1, 1])
  >>> model = fit(source, labels, np.array([[1.1], [0.1]]), PVSvmParams(1.0, 10.0, 1.1))
  >>> print(model.self_labels, model.pv)
  [ 1. -1.] 0.0
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pvmincq_jax._samples import Sample
from pvmincq_jax.baselines._form import KernelModel, decision, expand, make_fits, make_grid, rbf_kernel
from pvmincq_jax.baselines.svm import weighted_svc
from pvmincq_jax.matching.curve import bottleneck_radius
from pvmincq_jax.matching.graph import space_graph
from pvmincq_jax.matching.matching import draw_matchings
from pvmincq_jax.matching.selflabel import carry_labels
from pvmincq_jax.matching.space import make_space

__all__ = ["GRID", "VALIDATION", "PVSvmModel", "PVSvmParams", "decision", "fit", "fit_grid"]


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


def _fit_samples(samples: list[Sample], grid: list[PVSvmParams], seed: int) -> Iterator[PVSvmModel]:
    """Machines of one matching for each radius (section 3.2) and one kernel matrix for each gamma."""
    sample = samples[0]
    if any(other is not sample for other in samples):
        raise ValueError("source_labels must have equal rows: the matchings are shared by the grid")
    unit = bottleneck_radius(sample.source, sample.target)
    space, carried = make_space(sample.source, sample.target, ties=sample.labels), {}
    for radius in dict.fromkeys(params.radius for params in grid):
        matching = draw_matchings(space_graph(space, radius * unit), 1, seed=seed)
        carried[radius] = carry_labels(matching, sample.labels)
    if all(self_labels.pv == 1 for self_labels in carried.values()):
        raise ValueError(f"params.radius leaves every point unmatched: it is a distance of {max(carried) * unit:g}")
    kernels = {gamma: rbf_kernel(sample.target, sample.target, gamma) for gamma in {params.gamma for params in grid}}
    for gamma, cost, radius in grid:
        labels, label_weights, pv = carried[radius][:3]
        machine = np.full(len(labels), np.nan), np.nan
        if np.any(label_weights > 0):
            machine = weighted_svc(kernels[gamma], labels, cost * label_weights)
        kernel = expand(sample.target, gamma, *machine)
        yield PVSvmModel(kernel, sample.as_given(labels), np.asarray(pv), np.asarray(radius * unit))


fit, fit_grid = make_fits(PVSvmParams, _fit_samples)
