"""Several descriptions of the same objects: one majority vote over voters of each, adapted by PV-MinCq (section 5).

The voters are Gaussian kernels on blocks of features, with a bandwidth for each block, or the outputs of classifiers
that were learnt elsewhere. Labels come to the target over matchings of all blocks together or of each block for itself.
MinCq then weighs the voters of all views in one problem, so that views that err in different places correct each other.
"""

from collections.abc import Sequence
from typing import Literal

import jax.numpy as jnp
import numpy as np

from pvmincq_jax._checks import check_labels, check_length, check_points, check_positive, check_same_dimension
from pvmincq_jax._types import Array, ArrayLike, MarginUnit, common_dtype
from pvmincq_jax.adaptation.model import PVMinCq, learn_at
from pvmincq_jax.matching.graph import RadiusGraph, check_reach, space_graph
from pvmincq_jax.matching.matching import MatchingDraws, draw_matchings
from pvmincq_jax.matching.selflabel import SelfLabels, carry_labels
from pvmincq_jax.matching.space import make_space
from pvmincq_jax.voting.cbound import vote_margin
from pvmincq_jax.voting.families import ViewVoters
from pvmincq_jax.voting.voters import GAMMA_MULTIPLES, GaussianVoters, OutputVoters, default_gammas, rbf_votes

__all__ = ["adapt_votes", "pv_mincq_views", "stack_views", "view_margins", "view_scales", "view_votes"]

ViewMatching = Literal["joint", "each"]
Views = Sequence[ArrayLike]


def view_votes(views: Views, centers: Views, gammas: ArrayLike) -> Array:
    """Gaussian kernels that look at one block of features each (section 5).

    h_{v,j}(x) = exp(-gamma_v |x^v - c_j^v|^2), in [0, 1].

    Args:
      views: one array ``[m, d_v]`` per view, rows of one object in the same place.
      centers: one array ``[n_v, d_v]`` per view.
      gammas: one per view ``[views]``.

    Returns: votes ``[m, n_1 + n_2 + ..]``, differentiable in all three arguments.

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
    """The root of the median squared distance within each view of the target: what makes views comparable (section 5).

    Args:
      target_views: one array ``[m_t, d_v]`` per view.

    Returns: ``[views]``.

    Example:
      >>> view_scales([np.array([[0.0], [2.0]]), np.array([[0.0], [0.5]])])
      array([2. , 0.5])
    """
    check_views("target_views", target_views)
    return np.array([float(np.sqrt(GAMMA_MULTIPLES[0] / default_gammas(view)[0])) for view in target_views])


def stack_views(views: Views, scales: ArrayLike) -> np.ndarray:
    """One description out of many, each divided by its scale and by the root of their number (section 5).

    The squared distance in the stack is then the mean over the views of the squared distance in units of the scale.

    Args:
      views: one array ``[m, d_v]`` per view.
      scales: ``[views]``, see `view_scales`.

    Returns: ``[m, d_1 + d_2 + ..]``.

    Example:
      >>> stack_views([np.ones((3, 2)), np.zeros((3, 1))], np.array([1.0, 2.0])).shape
      (3, 3)
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
    self_labels: SelfLabels,
    *,
    margin: float,
    margin_unit: MarginUnit = "fraction",
    voter_mask: ArrayLike | None = None,
    bound: float = 1.0,
) -> PVMinCq:
    """MinCq over given voters, on labels carried over from the source: step (ii) of the paper's stacking (section 5).

    Args:
      votes: of the target points ``[m_t, n]``: the outputs of classifiers learnt on the source, or any others.
      self_labels: labels of the same points, from `pvmincq_jax.self_label`.
      margin: mu as a fraction of mu_max, in (0, 1], or absolute, in (0, mu_max].
      margin_unit: how to read ``margin``.
      voter_mask: which voters may vote ``[n]``; all when None.
      bound: the largest size of a vote.

    Returns: a `PVMinCq` whose points are votes: ``pvmincq_jax.decision(model, new_votes)`` is the expected vote.

    Example:
      >>> from pvmincq_jax import decision, self_label
      >>> self_labels = self_label(np.array([[0.0], [1.0]]), np.array([1, -1]), np.array([[0.1], [1.2]]), 0.3)
      >>> vote = adapt_votes(np.array([[1.0, -0.5], [-1.0, -0.5]]), self_labels, margin=0.5)
      >>> print(abs(vote.weights.round(3)), decision(vote, np.array([[0.8, 0.0]])).round(3))
      [0.25 0.  ] [0.2]
    """
    check_points("votes", votes)
    check_length("self_labels.labels", self_labels.labels, np.shape(votes)[0], "row of the votes")
    family = OutputVoters(bound)
    votes = np.asarray(votes, common_dtype(votes))
    mask = np.ones(votes.shape[1], bool) if voter_mask is None else np.asarray(voter_mask, bool)
    check_length("voter_mask", mask, votes.shape[1], "voter")
    return learn_at(family, votes, self_labels, mask, np.nan, margin, margin_unit)


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
    margin_unit: MarginUnit = "fraction",
) -> PVMinCq:
    """PV-MinCq over Gaussian kernels on several views; with one view, `pvmincq_jax.pv_mincq` (section 5).

    Args:
      source_views: one array ``[m_s, d_v]`` per view.
      source_labels: ``[m_s]`` in {-1, +1}.
      target_views: one array ``[m_t, d_v]`` per view, without labels.
      radius: a distance in `stack_views` of the target's `view_scales` if the matching is joint; one distance per view
        ``[views]``, in the view's own units, if each view is matched for itself.
      margin: mu as a fraction of mu_max, in (0, 1], or absolute, in (0, mu_max].
      gammas: of the kernels, one per view ``[views]``.
      matching: "joint" matches objects that are close in all views together; "each" draws matchings in every view, and
        the labels are means over all of them.
      draws: matchings, in each view or of the stack.
      seed: of the matchings.
      margin_unit: how to read ``margin``.

    Returns: a `PVMinCq`, for `pvmincq_jax.decision` and `pvmincq_jax.predict` of a list of views.

    Example:
      >>> a, b = np.array([[0.0], [0.2], [1.0], [1.2]]), np.array([[5.0], [5.0], [4.0], [4.5]])
      >>> labels = np.array([1, 1, -1, -1])
      >>> given = {"radius": [0.15, 0.1], "margin": 0.2, "gammas": [5.0, 1.0], "matching": "each"}
      >>> model = pv_mincq_views([a, b], labels, [a + 0.1, b], **given)
      >>> from pvmincq_jax import predict
      >>> print(predict(model, [np.array([[0.1], [1.1]]), np.array([[5.0], [4.2]])]), model.pv)
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
    check_any_reach(graphs)
    self_labels = carry_labels(draw_views(graphs, radii, np.arange(len(labels)), draws, seed), labels)
    family = view_family(target_views, np.asarray(gammas, float))
    mask = np.tile(self_labels.weights > 0, len(target_views))
    return learn_at(family, target_views, self_labels, mask, radii, margin, margin_unit)


def view_family(views: Sequence[np.ndarray], gammas: np.ndarray) -> ViewVoters:
    """Gaussian kernels on the points of every view, with a gamma for each view."""
    return ViewVoters(tuple(GaussianVoters(view, view.dtype.type(gamma)) for view, gamma in zip(views, gammas)))


def check_any_reach(graphs: Sequence[RadiusGraph]) -> None:
    """Some view has a pair within its radius."""
    if not any(graph.neighbours.size for graph in graphs):
        check_reach(min(graphs, key=lambda graph: graph.nearest))


def view_margins(model: PVMinCq, views: Views) -> Array:
    """What each view says: sum_j w_{v,j} h_{v,j}(x), whose sum over the views is the vote (section 5).

    Args:
      model: of `pv_mincq_views`.
      views: one array ``[m, d_v]`` per view.

    Returns: ``[m, views]``.

    Example:
      >>> a, b = np.array([[0.0], [0.2], [1.0], [1.2]]), np.array([[5.0], [5.1], [4.0], [4.5]])
      >>> labels = np.array([1, 1, -1, -1])
      >>> model = pv_mincq_views([a, b], labels, [a, b], radius=0.5, margin=0.2, gammas=[5.0, 1.0])
      >>> view_margins(model, [a, b]).shape
      (4, 2)
    """
    families = model.voters.families
    check_views("views", views, len(families))
    votes = [family.votes(view) for family, view in zip(families, views)]
    parts = jnp.split(jnp.asarray(model.weights), np.cumsum([part.shape[1] for part in votes])[:-1])
    return jnp.stack([vote_margin(own, part) for own, part in zip(votes, parts)], axis=1)


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
    cuts = (graph.within(float(radius), rows) for graph, radius in zip(graphs, radii))
    parts = [draw_matchings(cut, draws, seed=seed) for cut in cuts]
    partners = np.concatenate([part.partners for part in parts])
    return MatchingDraws(partners, float(np.mean([part.pv for part in parts])), len(rows))
