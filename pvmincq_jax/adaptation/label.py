"""PV-MinCq (Algorithm 3): match, carry the labels over, learn the majority vote on the self-labelled target."""

import numpy as np

from pvmincq_jax._checks import check_margins, read_task
from pvmincq_jax._types import ArrayLike, MarginUnit, RadiusUnit
from pvmincq_jax.adaptation.learn import learn_at
from pvmincq_jax.adaptation.model import PVMinCq
from pvmincq_jax.adaptation.seats import MOST_VOTERS, Centers, place_voters, voter_masks
from pvmincq_jax.matching.curve import grid_radii
from pvmincq_jax.matching.selflabel import self_label
from pvmincq_jax.matching.space import Metric
from pvmincq_jax.voting.families import VoterKind, one_family

__all__ = ["pv_mincq"]


def pv_mincq(
    source: ArrayLike,
    source_labels: ArrayLike,
    target: ArrayLike,
    *,
    radius: float,
    margin: float,
    gamma: float | None = None,
    draws: int = 1,
    seed: int = 0,
    voters: VoterKind = "rbf",
    centers: Centers = "target",
    most_voters: int = MOST_VOTERS,
    radius_unit: RadiusUnit = "absolute",
    margin_unit: MarginUnit = "fraction",
    metric: Metric = "euclidean",
) -> PVMinCq:
    """Learns a majority vote for the target domain from labelled source points (Algorithm 3).

    1. match source and target points within the radius; 2. carry the labels over the matching; 3. run MinCq on the
    self-labelled target points.

    Host code: it computes in the precision of the samples (float64 unless all are float32), whatever JAX's
    configuration, and returns NumPy arrays. To choose radius, margin and gamma without target labels, see
    `pvmincq_jax.sweep` and `pvmincq_jax.fit_validated`.

    Args:
      source, source_labels, target: ``[m_s, d]``, ``[m_s]`` in {-1, +1}, and ``[m_t, d]``, without labels.
      radius: pairs up to this distance may be matched.
      margin: mu as a fraction of mu_max, in (0, 1], or absolute, in (0, mu_max].
      gamma: of the kernels exp(-gamma |x - c|^2); or the value that other ``voters`` make a family of.
      draws: 1 for the paper's single matching; more for soft labels, the mean over as many random maximum matchings.
      seed: of the matchings.
      voters: "rbf" for Gaussian kernels, "stumps" for ten decision stumps per feature; a list of functions from points
        to values in [-1, 1]; any family with ``votes(x)``, such as `pvmincq_jax.StumpVoters`, in JAX or NumPy; a
        function from a value, ``gamma``, to a family; or a list of families, of which ``gamma`` is the number, from 0
        on. `pvmincq_jax.Voters` says how to write one.
      centers: where kernels, or other voters with a point each, sit: "target" (the matched target points, "the
        learning sample" of MinCq in the paper), "source", or "both". ``python -m experiments.voters`` compares them.
        The default is the paper's own and the cheapest.
      most_voters: how many of them at most. Of more points than that, some stand for all of them, drawn as
        k-means++ starts and the same whatever the order of the rows; a kernel votes if it stands for a matched point.
      radius_unit: how to read ``radius``: "absolute", "pv" or "bottleneck", see `pvmincq_jax.grid_radii`.
      margin_unit: how to read ``margin``: "fraction" or "absolute".
      metric: of the matching, see `pvmincq_jax.match`.

    Returns: a `PVMinCq`, for `pvmincq_jax.decision` and `pvmincq_jax.predict`.

    Example:
      >>> from pvmincq_jax import predict
      >>> source, labels = np.array([[0.0], [0.2], [1.0], [1.2]]), np.array([1, 1, -1, -1])
      >>> model = pv_mincq(source, labels, source + 0.1, radius=0.15, margin=0.5, gamma=5.0)
      >>> print(predict(model, np.array([[0.1], [1.1]])), float(model.pv))
      [ 1. -1.] 0.0
    """
    source, labels, target = read_task(source, source_labels, target)
    check_margins([margin], margin_unit, "margin")
    family = one_family(voters, gamma)
    reach = radius if radius_unit == "absolute" else float(grid_radii(source, target, [radius], radius_unit, metric)[0])
    found = self_label(source, labels, target, reach, draws=draws, seed=seed, metric=metric)
    placed = place_voters([family], source, target, centers, most_voters, seed)
    mask = voter_masks(placed, [[found]], np.ones((1, len(source)), bool))[0, 0, 0]
    return learn_at(placed[0].family, target, found, mask, reach, margin, margin_unit)
