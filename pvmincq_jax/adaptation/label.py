"""PV-MinCq (Algorithm 3): match, carry the labels over, learn the majority vote on the self-labelled target."""

import os
import zipfile
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np

from pvmincq_jax._checks import check_positive, check_task
from pvmincq_jax._types import Array, ArrayLike, MarginUnit, Status, common_dtype, precision
from pvmincq_jax.matching.matching import ExpectedMatching
from pvmincq_jax.matching.selflabel import SelfLabels, self_label
from pvmincq_jax.matching.space import Metric
from pvmincq_jax.voting.cbound import vote_margin
from pvmincq_jax.voting.mincq import max_margin, mincq
from pvmincq_jax.voting.voters import rbf_votes

__all__ = ["PVMinCq", "decision", "load_model", "predict", "pv_mincq", "save_model"]

Voters = Literal["target", "source", "both"]


class PVMinCq(NamedTuple):
    """A majority vote of Gaussian kernels, with all that explains it. A pytree of arrays.

    Attributes:
      centers: of the voters ``[n, d]``.
      weights: signed weights of the vote ``[n]``; 0 for voters that were masked out.
      gamma: of the kernels.
      margin: mu, absolute.
      mu_max: the largest margin that these self-labels allow.
      c_bound: of the vote on the self-labelled target.
      kkt_residual: accuracy of the weights, see `pvmincq_jax.MinCqSolution`.
      radius: of the matching.
      pv: the perturbed variation at that radius.
      labels: self-labels of the target points ``[m_t]``; of `pvmincq_jax.pv_transport_mincq`, the true labels of the
        moved source points ``[m_s]``.
      label_weights: of the same points, 0 for a point without a match.
      pairs: who carried its label to whom (row numbers of source and target).
    """

    centers: ArrayLike
    weights: ArrayLike
    gamma: ArrayLike
    margin: ArrayLike
    mu_max: ArrayLike
    c_bound: ArrayLike
    kkt_residual: ArrayLike
    radius: ArrayLike
    pv: ArrayLike
    labels: ArrayLike
    label_weights: ArrayLike
    pairs: ExpectedMatching


def voter_centers(source: np.ndarray, target: np.ndarray, voters: Voters) -> np.ndarray:
    """Where the kernels sit ``[n, d]``: target points, source points, or both, target first."""
    if voters not in ("target", "source", "both"):
        raise ValueError(f"voters must be 'target', 'source' or 'both'; it is {voters!r}")
    parts = {"target": [target], "source": [source], "both": [target, source]}[voters]
    return np.concatenate(parts)


def voter_mask(matched: np.ndarray, learning: np.ndarray, voters: Voters) -> np.ndarray:
    """Which kernels vote: those of matched target points ``[m_t]``, of source points learnt from ``[m_s]``."""
    return np.concatenate({"target": [matched], "source": [learning], "both": [matched, learning]}[voters])


def pv_mincq(
    source: ArrayLike,
    source_labels: ArrayLike,
    target: ArrayLike,
    *,
    radius: float,
    margin: float,
    gamma: float,
    draws: int = 1,
    seed: int = 0,
    voters: Voters = "target",
    margin_unit: MarginUnit = "absolute",
    metric: Metric = "euclidean",
) -> PVMinCq:
    """Learns a majority vote for the target domain from labelled source points (Algorithm 3).

    1. match source and target points within the radius; 2. carry the labels over the matching; 3. run MinCq on the
    self-labelled target points, over Gaussian kernels.

    Host code: it computes in the precision of the samples (float64 unless all are float32), whatever JAX's
    configuration, and returns NumPy arrays. To choose radius, margin and gamma without target labels, see
    `pvmincq_jax.sweep` and `pvmincq_jax.fit_validated`.

    Args:
      source: ``[m_s, d]``.
      source_labels: ``[m_s]`` in {-1, +1}.
      target: ``[m_t, d]``, without labels.
      radius: pairs up to this distance may be matched.
      margin: mu, in (0, mu_max], or a fraction of mu_max in (0, 1].
      gamma: of the kernels exp(-gamma |x - c|^2).
      draws: 1 for the paper's single matching; more for soft labels, the mean over as many random maximum matchings.
      seed: of the matchings.
      voters: where the kernels sit: "target" (the matched target points, "the learning sample" of MinCq in the
        paper), "source", or "both". ``python -m experiments.voters`` gave 99.8, 97.2, 75.3 and 96.7 % with "target" at
        40, 50, 60 degrees and on the translation; 100, 95.5, 80.2 and 92.0 with "source"; 100, 96.6, 80.2 and 96.0 with
        "both" (three runs, standard errors up to 4.6). No choice wins everywhere, and the default is the paper's own
        and the cheapest.
      margin_unit: how to read ``margin``.
      metric: of the matching, see `pvmincq_jax.match`.

    Returns:
      A `PVMinCq`, for `decision` and `predict`.

    Example:
      >>> source, labels = np.array([[0.0], [0.2], [1.0], [1.2]]), np.array([1, 1, -1, -1])
      >>> model = pv_mincq(source, labels, source + 0.1, radius=0.15, margin=0.5, gamma=5.0, margin_unit="fraction")
      >>> print(predict(model, np.array([[0.1], [1.1]])), float(model.pv))
      [ 1. -1.] 0.0
    """
    check_task(source, source_labels, target)
    check_positive("gamma", gamma)
    dtype = common_dtype(source, target)
    source, target = np.asarray(source, dtype), np.asarray(target, dtype)
    found = self_label(source, source_labels, target, radius, draws=draws, seed=seed, metric=metric)
    centers = voter_centers(source, target, voters)
    mask = voter_mask(found.weights > 0, np.ones(len(source), bool), voters)
    with precision(dtype):
        return learn_vote(centers, mask, target, found, float(radius), margin, gamma, margin_unit)


def learn_vote(
    centers: np.ndarray,
    mask: np.ndarray,
    target: np.ndarray,
    found: SelfLabels,
    radius: float,
    margin: float,
    gamma: float,
    margin_unit: MarginUnit,
) -> PVMinCq:
    """MinCq on the self-labelled target points (step 3)."""
    votes = rbf_votes(target, centers, gamma)
    labels, weights = found.labels.astype(target.dtype), found.weights.astype(target.dtype)
    mu = absolute_margin(margin, float(max_margin(votes, labels, sample_weights=weights, voter_mask=mask)), margin_unit)
    solution = mincq(votes, labels, mu, sample_weights=weights, voter_mask=mask)
    if int(solution.status) != Status.SOLVED:
        raise ValueError(
            f"MinCq did not reach its accuracy ({Status(int(solution.status)).sentence}; residual "
            f"{float(solution.kkt_residual):.1e}): pass the samples in float64, or a larger margin than {mu:g}"
        )
    return PVMinCq(
        centers=centers,
        weights=np.asarray(solution.weights),
        gamma=np.asarray(gamma, target.dtype),
        margin=np.asarray(mu, target.dtype),
        mu_max=np.asarray(solution.mu_max),
        c_bound=np.asarray(solution.c_bound),
        kkt_residual=np.asarray(solution.kkt_residual),
        radius=np.asarray(radius, target.dtype),
        pv=np.asarray(found.pv, target.dtype),
        labels=labels,
        label_weights=weights,
        pairs=found.pairs,
    )


def absolute_margin(margin: float, mu_max: float, unit: MarginUnit) -> float:
    """The margin as mu; a fraction must be in (0, 1]."""
    if unit == "absolute":
        return float(margin)
    if unit != "fraction":
        raise ValueError(f"margin_unit must be 'absolute' or 'fraction'; it is {unit!r}")
    if not 0 < float(margin) <= 1:
        raise ValueError(f"margin must be in (0, 1] as a fraction of mu_max; it is {margin}")
    return float(margin) * mu_max


def decision(model: Any, x: ArrayLike) -> Array:
    """The expected vote at new points; its sign is the prediction, its size the confidence.

    sum_j w_j exp(-gamma |x - c_j|^2).

    Args:
      model: a `PVMinCq`, or anything with ``centers``, ``weights`` and ``gamma``.
      x: ``[m, d]``.

    Returns:
      ``[m]``; differentiable in x and in the model.
    """
    return vote_margin(rbf_votes(x, model.centers, model.gamma), model.weights)


def predict(model: Any, x: ArrayLike) -> Array:
    """The majority vote: +1 or -1, and 0 exactly where the votes balance, which counts as an error for either label.

    Args:
      model: see `decision`.
      x: ``[m, d]``.

    Returns:
      ``[m]``.
    """
    return jnp.sign(decision(model, x))


def save_model(model: PVMinCq, path: str | os.PathLike) -> None:
    """Writes a model to an ``.npz`` file, as plain arrays.

    Args:
      model: a `PVMinCq`.
      path: where to; the name is taken as it is.
    """
    fields = {name: value for name, value in model._asdict().items() if name != "pairs"}
    pairs = {f"pairs_{name}": value for name, value in model.pairs._asdict().items()}
    arrays: dict[str, Any] = {name: np.asarray(value) for name, value in {**fields, **pairs}.items()}
    # Through a file of our own: given a name, NumPy would add ".npz" to it.
    with open(path, "wb") as file:
        np.savez(file, **arrays)


def load_model(path: str | os.PathLike) -> PVMinCq:
    """Reads a model that `save_model` wrote; nothing in the file is executed.

    Args:
      path: where from.

    Returns:
      The same `PVMinCq`, to the bit.
    """
    wanted = [name for name in PVMinCq._fields if name != "pairs"]
    if not zipfile.is_zipfile(path) and os.path.exists(path):
        raise ValueError(f"path {os.fspath(path)} is not a saved PVMinCq: it is no npz archive")
    with np.load(path, allow_pickle=False) as stored:
        missing = [n for n in (*wanted, *(f"pairs_{p}" for p in ExpectedMatching._fields)) if n not in stored]
        if missing:
            raise ValueError(f"path {os.fspath(path)} is not a saved PVMinCq: it lacks {', '.join(missing)}")
        pairs = ExpectedMatching(*(stored[f"pairs_{name}"] for name in ExpectedMatching._fields))
        return PVMinCq(**{name: stored[name] for name in wanted}, pairs=pairs)
