"""A majority vote with all that explains it, and its values at new points."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pvmincq_jax._checks import is_traced, read_samples
from pvmincq_jax._threads import on_all_cores
from pvmincq_jax._types import ArrayLike, brief
from pvmincq_jax.matching.matching import ExpectedMatching
from pvmincq_jax.matching.selflabel import SelfLabels
from pvmincq_jax.voting.cbound import vote_margin
from pvmincq_jax.voting.families import JoinedVoters, read_votes

__all__ = ["PVMinCq", "decision", "predict"]

# Numbers in the votes of one block of new points: 8 MB.
_BLOCK = 1 << 20


@jax.tree_util.register_static
class ClassNames(tuple):
    """The names of the classes, in order: a tuple that jit, vmap and grad leave alone.

    Example:
      >>> names = ClassNames(["no", "yes"])
      >>> names[1], jax.tree.leaves(names)
      ('yes', [])
    """


class PVMinCq(NamedTuple):
    """A majority vote, with all that explains it. A pytree of arrays.

    Attributes:
      voters: the family that votes, e.g. `pvmincq_jax.GaussianVoters`; anything with ``votes(x) -> [m, n]``.
      weights: signed weights of the vote ``[n]``; 0 for voters that were masked out. Of c > 2 classes, a row for each
        against the rest ``[c, n]``, all of one margin, and the next four are ``[c]``, the labels ``[c, m]``.
      margin: the first moment of the vote on the learning sample: mu, absolute.
      mu_max: the largest margin that the learning sample allows.
      c_bound: of the vote on the learning sample.
      kkt_residual: accuracy of the weights, see `pvmincq_jax.MinCqSolution`.
      radius: of the matching; one per view where each view was matched for itself, 0 with one domain.
      pv: the perturbed variation at that radius.
      labels: of the learning sample: the self-labels of the target points ``[m_t]``; in the transport form, the true
        labels of the moved source points ``[m_s]``.
      label_weights: of the same points, 0 for a point without a match.
      pairs: who carried its label to whom (row numbers of source and target).
      classes: the names of the classes, where a classifier learnt them: of two, that of -1 and that of +1. Else None.

    A `pvmincq_jax.committee` solves no program of its own: its mu_max, kkt_residual, radius and gamma are None. Its
    learning sample is that of its best member, on which its margin and C-bound are taken.
    """

    voters: Any
    weights: ArrayLike
    margin: ArrayLike
    mu_max: Any
    c_bound: ArrayLike
    kkt_residual: Any
    radius: Any
    pv: ArrayLike
    labels: ArrayLike
    label_weights: ArrayLike
    pairs: ExpectedMatching
    classes: ClassNames | None = None

    def __repr__(self) -> str:
        """In a few lines."""
        return brief(self)

    @property
    def centers(self) -> Any:
        """Of kernels ``[n, d]``, or None."""
        return getattr(self.voters, "centers", None)

    @property
    def gamma(self) -> Any:
        """Of Gaussian voters, or None; also for a committee, whose ``voters.families`` have one each."""
        return None if self.kkt_residual is None else getattr(self.voters, "gamma", None)


def make_model(voters: Any, sample: SelfLabels, radius: Any, weights: np.ndarray, *figures: Any) -> PVMinCq:
    """A model in the precision of its weights; the figures are margin, mu_max, C-bound and KKT residual, or None."""
    numbers = [
        None if one is None else np.asarray(one, weights.dtype)
        for one in (*figures, radius, sample.pv, sample.labels, sample.weights)
    ]
    return PVMinCq._make([voters, weights, *numbers, sample.pairs, None])


def decision(model: Any, x: Any) -> Any:
    """The expected vote at new points; its sign is the prediction, its size the confidence (the output of Algorithm 1).

    sum_j w_j h_j(x).

    Outside of jit, vmap and grad it is computed in NumPy, in the precision of the model whatever JAX's configuration,
    some points at a time on all cores, and the value of a point depends on that point alone.

    Args:
      model: a `PVMinCq`, or anything with ``voters`` and ``weights``.
      x: ``[m, d]``, or what else the voters take: a list of views, or the outputs of given classifiers.

    Returns: ``[m]``, or ``[m, c]`` for weights ``[c, n]``; differentiable in x and in the model.

    Example:
      >>> from types import SimpleNamespace
      >>> from pvmincq_jax.voting.voters import GaussianVoters
      >>> vote = SimpleNamespace(voters=GaussianVoters(np.array([[0.0], [1.0]]), 1.0), weights=np.array([0.5, -0.5]))
      >>> decision(vote, np.array([[0.0], [0.5]])).round(3)
      array([0.316, 0.   ])
    """
    if not (hasattr(model, "voters") and hasattr(model, "weights")):
        raise ValueError(f"model must be a PVMinCq, such as the .model of a fit; it is of type {type(model).__name__}")
    if is_traced(model.voters, model.weights, x):
        votes, weights = model.voters.votes(x), model.weights
        return vote_margin(votes, weights) if jnp.ndim(weights) == 1 else votes @ jnp.transpose(weights)
    weights = np.asarray(model.weights)
    rows = max(1, _BLOCK // weights.shape[-1])

    families = model.voters.families if isinstance(model.voters, JoinedVoters) else (model.voters,)

    def values(part: Any) -> np.ndarray:
        total: Any = 0.0
        first = 0
        for family in families:
            votes = read_votes(family, part, weights.dtype)
            last = first + votes.shape[1]
            # Sums along a row add in an order of their own, whatever the number of rows; a matrix product does not.
            each = [np.einsum("mn,n->m", votes, row[first:last]) for row in np.atleast_2d(weights)]
            total, first = total + (each[0] if weights.ndim == 1 else np.stack(each, axis=1)), last
        if first != weights.shape[-1]:
            raise ValueError(f"model has {weights.shape[-1]} weights, and its voters give {first} votes")
        return total

    blocks = list(_row_blocks(x, rows))
    return values(blocks[0]) if len(blocks) == 1 else np.concatenate(on_all_cores(values, blocks))


def _row_blocks(x: Any, rows: int) -> Iterator[Any]:
    """The points, or all views of them, so many rows at a time."""
    views = list(x) if isinstance(x, list | tuple) and all(np.ndim(view) == 2 for view in x) else None
    points = read_samples(x=x)[0] if views is None else views[0]
    if np.ndim(points) < 2:
        # For the family to complain about.
        yield points
        return
    for start in range(0, max(1, len(points)), rows):
        part = slice(start, start + rows)
        yield points[part] if views is None else [view[part] for view in views]


def predict(model: Any, x: Any) -> Any:
    """The majority vote: +1 or -1, and 0 exactly where the votes balance, which counts as an error for either label.

    Of more than two classes, the number of the class with the largest vote, the first of them where it is shared.

    Definition 1.

    Args:
      model: see `decision`.
      x: see `decision`.

    Returns: ``[m]``.

    Example:
      >>> from types import SimpleNamespace
      >>> from pvmincq_jax.voting.voters import GaussianVoters
      >>> vote = SimpleNamespace(voters=GaussianVoters(np.array([[0.0], [1.0]]), 1.0), weights=np.array([0.5, -0.5]))
      >>> predict(vote, np.array([[0.2], [0.5], [0.8]]))
      array([ 1.,  0., -1.])
    """
    values = decision(model, x)
    if np.ndim(values) == 2:
        return (jnp if is_traced(values) else np).argmax(values, axis=1)
    return jnp.sign(values) if is_traced(values) else np.sign(values)
