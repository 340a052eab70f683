"""Several descriptions of the same objects: one majority vote over voters of each, adapted by PV-MinCq (section 5).

The voters are Gaussian kernels on blocks of features, with a bandwidth for each block, or the outputs of classifiers
that were learnt elsewhere. Labels come to the target over matchings of all blocks together or of each block for itself.
MinCq then weighs the voters of all views in one problem, so that views that err in different places correct each other.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import jax.numpy as jnp
import numpy as np

from pvmincq_jax._checks import check_labels, check_length, check_points, check_positive, check_same_dimension
from pvmincq_jax._types import Array, ArrayLike, MarginUnit, Status, common_dtype, precision
from pvmincq_jax.adaptation.label import absolute_margin
from pvmincq_jax.matching.graph import RadiusGraph, space_graph
from pvmincq_jax.matching.matching import MatchingDraws, draw_matchings
from pvmincq_jax.matching.selflabel import SelfLabels, carry_labels
from pvmincq_jax.matching.space import make_space
from pvmincq_jax.voting.cbound import vote_margin
from pvmincq_jax.voting.mincq import max_margin, mincq
from pvmincq_jax.voting.voters import GAMMA_MULTIPLES, default_gammas, rbf_votes

__all__ = [
    "AdaptedVote",
    "ViewMatching",
    "ViewsVote",
    "adapt_votes",
    "decision_views",
    "predict_views",
    "pv_mincq_views",
    "stack_views",
    "view_margins",
    "view_scales",
    "view_votes",
]

ViewMatching = Literal["joint", "each"]
Views = Sequence[ArrayLike]


class AdaptedVote(NamedTuple):
    """A majority vote over given voters. A pytree of arrays.

    Attributes:
      weights: signed weights of the vote ``[n]``; 0 for voters that were masked out.
      margin: mu, absolute.
      mu_max: the largest margin that these self-labels allow.
      c_bound: of the vote on the self-labelled target.
      kkt_residual: accuracy of the weights, see `pvmincq_jax.MinCqSolution`.
      pv: the perturbed variation of the matching; the mean over the views if each was matched for itself.
      labels: self-labels of the target points ``[m_t]``.
      label_weights: ``[m_t]``, 0 for a target point without a match.
    """

    weights: ArrayLike
    margin: ArrayLike
    mu_max: ArrayLike
    c_bound: ArrayLike
    kkt_residual: ArrayLike
    pv: ArrayLike
    labels: ArrayLike
    label_weights: ArrayLike


class ViewsVote(NamedTuple):
    """A majority vote of Gaussian kernels on several views. A pytree of arrays.

    Attributes:
      centers: of the voters, one array ``[m_t, d_v]`` per view.
      gammas: one per view ``[views]``.
      vote: over the voters of the first view, then of the second, and so on.
    """

    centers: tuple[ArrayLike, ...]
    gammas: ArrayLike
    vote: AdaptedVote


def view_votes(views: Views, centers: Views, gammas: ArrayLike) -> Array:
    """Gaussian kernels that look at one block of features each.

    h_{v,j}(x) = exp(-gamma_v |x^v - c_j^v|^2), in [0, 1].

    Args:
      views: one array ``[m, d_v]`` per view, rows of one object in the same place.
      centers: one array ``[n_v, d_v]`` per view.
      gammas: one per view ``[views]``.

    Returns:
      Votes ``[m, n_1 + n_2 + ..]``, differentiable in all three arguments.

    Example:
      >>> views, centers = [np.zeros((1, 1)), np.ones((1, 2))], [np.ones((1, 1)), np.ones((1, 2))]
      >>> print(view_votes(views, centers, [2.0, 1.0]).round(3))
      [[0.135 1.   ]]
    """
    check_views("views", views)
    if len(centers) != len(views):
        raise ValueError(f"centers must hold one array per view ({len(views)}); it holds {len(centers)}")
    check_length("gammas", gammas, len(views), "view")
    check_positive("gammas", gammas)
    return jnp.concatenate([rbf_votes(x, c, gammas[v]) for v, (x, c) in enumerate(zip(views, centers))], axis=1)  # type: ignore[index]


def view_scales(target_views: Views) -> np.ndarray:
    """The root of the median squared distance within each view of the target: what makes views comparable.

    Args:
      target_views: one array ``[m_t, d_v]`` per view.

    Returns:
      ``[views]``.

    Example:
      >>> view_scales([np.array([[0.0], [2.0]]), np.array([[0.0], [0.5]])])
      array([2. , 0.5])
    """
    check_views("target_views", target_views)
    return np.array([float(np.sqrt(GAMMA_MULTIPLES[0] / default_gammas(view)[0])) for view in target_views])


def stack_views(views: Views, scales: ArrayLike) -> np.ndarray:
    """One description out of many, each divided by its scale and by the root of their number.

    The squared distance in the stack is then the mean over the views of the squared distance in units of the scale.

    Args:
      views: one array ``[m, d_v]`` per view.
      scales: ``[views]``, see `view_scales`.

    Returns:
      ``[m, d_1 + d_2 + ..]``.
    """
    check_views("views", views)
    check_length("scales", scales, len(views), "view")
    check_positive("scales", scales)
    dtype = common_dtype(*views)
    parts = [
        np.asarray(view, dtype) / dtype.type(s * np.sqrt(len(views))) for view, s in zip(views, np.asarray(scales))
    ]
    return np.concatenate(parts, axis=1)


def adapt_votes(
    votes: ArrayLike,
    found: SelfLabels,
    *,
    margin: float,
    margin_unit: MarginUnit = "absolute",
    voter_mask: ArrayLike | None = None,
) -> AdaptedVote:
    """MinCq over given voters, on labels carried over from the source: step (ii) of the paper's stacking (section 5).

    Args:
      votes: of the target points ``[m_t, n]``: `pvmincq_jax.classifier_votes` of classifiers learnt on the source, or
        any others.
      found: labels of the same points, from `pvmincq_jax.self_label`.
      margin: mu, in (0, mu_max], or a fraction of mu_max in (0, 1].
      margin_unit: how to read ``margin``.
      voter_mask: which voters may vote ``[n]``; all when None.

    Returns:
      An `AdaptedVote`. At new points, ``pvmincq_jax.vote_margin(new_votes, vote.weights)`` is the expected vote.

    Example:
      >>> from pvmincq_jax import self_label
      >>> found = self_label(np.array([[0.0], [1.0]]), np.array([1, -1]), np.array([[0.1], [1.2]]), 0.3)
      >>> vote = adapt_votes(np.array([[1.0, -0.5], [-1.0, -0.5]]), found, margin=0.5, margin_unit="fraction")
      >>> print(vote.weights.round(3), vote.c_bound.round(3))
      [0.25 0.  ] 0.0
    """
    check_points("votes", votes)
    check_length("found.labels", found.labels, np.shape(votes)[0], "row of the votes")
    dtype = common_dtype(votes)
    labels, weights = found.labels.astype(dtype), found.weights.astype(dtype)
    with precision(dtype):
        votes = jnp.asarray(votes, dtype)
        mask = np.ones(votes.shape[1], bool) if voter_mask is None else np.asarray(voter_mask)
        mu = absolute_margin(
            margin, float(max_margin(votes, labels, sample_weights=weights, voter_mask=mask)), margin_unit
        )
        solution = mincq(votes, labels, mu, sample_weights=weights, voter_mask=mask)
    if int(solution.status) != Status.SOLVED:
        raise ValueError(
            f"MinCq did not reach its accuracy ({Status(int(solution.status)).sentence}; residual "
            f"{float(solution.kkt_residual):.1e}): pass the votes in float64, or a larger margin than {mu:g}"
        )
    return AdaptedVote(
        weights=np.asarray(solution.weights),
        margin=np.asarray(mu, dtype),
        mu_max=np.asarray(solution.mu_max),
        c_bound=np.asarray(solution.c_bound),
        kkt_residual=np.asarray(solution.kkt_residual),
        pv=np.asarray(found.pv, dtype),
        labels=labels,
        label_weights=weights,
    )


def pv_mincq_views(
    source_views: Views,
    source_labels: ArrayLike,
    target_views: Views,
    *,
    radius: float | ArrayLike,
    margin: float,
    gammas: ArrayLike,
    matching: ViewMatching = "joint",
    draws: int = 1,
    seed: int = 0,
    margin_unit: MarginUnit = "absolute",
) -> ViewsVote:
    """PV-MinCq over Gaussian kernels on several views; with one view, `pvmincq_jax.pv_mincq`.

    Args:
      source_views: one array ``[m_s, d_v]`` per view.
      source_labels: ``[m_s]`` in {-1, +1}.
      target_views: one array ``[m_t, d_v]`` per view, without labels.
      radius: a distance in `stack_views` of the target's `view_scales` if the matching is joint; one distance per view
        ``[views]``, in the view's own units, if each view is matched for itself.
      margin: mu, in (0, mu_max], or a fraction of mu_max in (0, 1].
      gammas: of the kernels, one per view ``[views]``.
      matching: "joint" matches objects that are close in all views together; "each" draws matchings in every view, and
        the labels are means over all of them.
      draws: matchings, in each view or of the stack.
      seed: of the matchings.
      margin_unit: how to read ``margin``.

    Returns:
      A `ViewsVote`, for `decision_views` and `predict_views`.

    Example:
      >>> a, b = np.array([[0.0], [0.2], [1.0], [1.2]]), np.array([[5.0], [5.0], [4.0], [4.5]])
      >>> labels = np.array([1, 1, -1, -1])
      >>> model = pv_mincq_views([a, b], labels, [a + 0.1, b], radius=[0.15, 0.1], margin=0.2, gammas=[5.0, 1.0],
      ...                        matching="each", margin_unit="fraction")
      >>> print(predict_views(model, [np.array([[0.1], [1.1]]), np.array([[5.0], [4.2]])]), model.vote.pv)
      [ 1. -1.] 0.0
    """
    source_views, target_views, labels = check_views_task(source_views, source_labels, target_views)
    check_length("gammas", gammas, len(target_views), "view")
    check_positive("gammas", gammas)
    spaces = matched_spaces(source_views, target_views, matching)
    radii = np.atleast_1d(np.asarray(radius, float))
    if radii.shape != (len(spaces),):
        raise ValueError(
            f"radius must hold {len(spaces)} numbers with matching={matching!r}; its shape is {radii.shape}"
        )
    graphs = [space_graph(make_space(*space, ties=labels), float(one)) for space, one in zip(spaces, radii)]
    found = carry_labels(draw_views(graphs, radii, np.arange(len(labels)), draws, seed), labels)
    if not np.any(found.weights > 0):
        raise ValueError(
            f"radius {radius} leaves every point unmatched: the smallest distances between source and target are "
            f"{', '.join(f'{graph.nearest:g}' for graph in graphs)}"
        )
    return learn_views(target_views, np.asarray(gammas, float), found, margin, margin_unit)


def view_margins(model: ViewsVote, views: Views) -> Array:
    """What each view says: sum_j w_{v,j} h_{v,j}(x), whose sum over the views is the vote.

    Args:
      model: a `ViewsVote`.
      views: one array ``[m, d_v]`` per view.

    Returns:
      ``[m, views]``.
    """
    sizes = [np.shape(center)[0] for center in model.centers]
    parts = jnp.split(jnp.asarray(model.vote.weights), np.cumsum(sizes)[:-1])
    gammas = jnp.asarray(model.gammas)
    said = [vote_margin(rbf_votes(x, c, gammas[v]), w) for v, (x, c, w) in enumerate(zip(views, model.centers, parts))]
    return jnp.stack(said, axis=1)


def decision_views(model: ViewsVote, views: Views) -> Array:
    """The expected vote at new objects ``[m]``; its sign is the prediction. Differentiable in views and model."""
    check_views("views", views, len(model.centers))
    return jnp.sum(view_margins(model, views), axis=1)


def predict_views(model: ViewsVote, views: Views) -> Array:
    """The majority vote at new objects ``[m]``: +1 or -1, and 0 exactly where the votes balance."""
    return jnp.sign(decision_views(model, views))


def check_views(name: str, views: Views, count: int | None = None) -> None:
    """One array per view, all of the same objects."""
    if not isinstance(views, list | tuple) or not views:
        raise ValueError(f"{name} must be a list or tuple with one array per view; it is {type(views).__name__}")
    if count is not None and len(views) != count:
        raise ValueError(f"{name} must hold {count} views; it holds {len(views)}")
    for v, view in enumerate(views):
        check_points(f"{name}[{v}]", view)
        if np.shape(view)[0] != np.shape(views[0])[0]:
            raise ValueError(
                f"{name} must describe the same objects; {name}[0] has {np.shape(views[0])[0]} rows and {name}[{v}] "
                f"has {np.shape(view)[0]}"
            )


def check_views_task(
    source_views: Views, source_labels: ArrayLike, target_views: Views
) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
    """Checked, in one precision."""
    check_views("source_views", source_views)
    check_views("target_views", target_views, len(source_views))
    for v, (x, y) in enumerate(zip(source_views, target_views)):
        check_same_dimension(f"source_views[{v}]", x, f"target_views[{v}]", y)
    check_labels("source_labels", source_labels, np.shape(source_views[0])[0], soft=False, both_classes=True)
    dtype = common_dtype(*source_views, *target_views)
    source, target = ([np.asarray(view, dtype) for view in views] for views in (source_views, target_views))
    return source, target, np.asarray(source_labels, dtype)


def matched_spaces(
    source_views: list[np.ndarray], target_views: list[np.ndarray], matching: ViewMatching
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The pairs of samples that are matched: the stacks, or each view's own."""
    if matching == "joint":
        scales = view_scales(target_views)
        return [(stack_views(source_views, scales), stack_views(target_views, scales))]
    if matching != "each":
        raise ValueError(f"matching must be 'joint' or 'each'; it is {matching!r}")
    return list(zip(source_views, target_views))


def draw_views(graphs: list[RadiusGraph], radii: np.ndarray, rows: np.ndarray, draws: int, seed: int) -> MatchingDraws:
    """The draws of all graphs in one list; their PV is the mean."""
    parts = [
        draw_matchings(graph.within(float(radius), rows), draws, seed=seed) for graph, radius in zip(graphs, radii)
    ]
    partners = np.concatenate([part.partners for part in parts])
    return MatchingDraws(partners, float(np.mean([part.pv for part in parts])), len(rows))


def learn_views(
    views: list[np.ndarray], gammas: np.ndarray, found: SelfLabels, margin: float, margin_unit: MarginUnit
) -> ViewsVote:
    """MinCq over the kernels of all views that sit on target points with a label."""
    dtype = common_dtype(*views)
    gammas = gammas.astype(dtype)
    with precision(dtype):
        votes = np.asarray(view_votes(views, views, gammas))
    mask = np.tile(found.weights > 0, len(views))
    return ViewsVote(
        tuple(views), gammas, adapt_votes(votes, found, margin=margin, margin_unit=margin_unit, voter_mask=mask)
    )
