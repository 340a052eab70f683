"""Families of voters as values: small pytrees with ``votes(x) -> [m, n]``, which a model holds.

A family computes in JAX where something is traced, and else in NumPy, in its own precision, whatever JAX's
configuration: so a model answers the same on every machine, and without compiling.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from pvmincq_jax._checks import check_points, check_positive, check_same_dimension, is_traced
from pvmincq_jax._types import ArrayLike, common_dtype, precision
from pvmincq_jax.voting.voters import check_bounded, gaussian_votes, sign_votes, stump_thresholds

__all__ = ["FunctionVoters", "GaussianVoters", "OutputVoters", "StumpVoters", "ViewVoters", "Voters"]


@runtime_checkable
class Voters(Protocol):
    """Any family: a pytree with this one method."""

    def votes(self, x: Any) -> Any:
        """What each voter says of each point ``[m, n]``."""
        ...


class GaussianVoters(NamedTuple):
    """Gaussian kernels, h_j(x) = exp(-gamma |x - c_j|^2).

    Attributes:
      centers: ``[n, d]``.
      gamma: above 0, a scalar or ``[n]``.

    Example:
      >>> GaussianVoters(np.array([[0.0], [1.0]]), 2.0).votes(np.array([[0.0]])).round(3)
      array([[1.   , 0.135]])
    """

    centers: ArrayLike
    gamma: ArrayLike

    def votes(self, x: ArrayLike) -> Any:
        """Votes ``[m, n]`` of points ``[m, d]``; see `pvmincq_jax.rbf_votes`."""
        check_points("x", x)
        check_same_dimension("x", x, "centers", self.centers)
        return gaussian_votes(_as(x, self.centers), self.centers, self.gamma)


class StumpVoters(NamedTuple):
    """Decision stumps, +1 if x[f_j] > t_j, else -1.

    Attributes:
      features: integers ``[n]``.
      thresholds: ``[n]``.

    Example:
      >>> StumpVoters(np.array([0, 1]), np.array([0.5, 0.5])).votes(np.array([[0.0, 1.0]]))
      array([[-1.,  1.]])
    """

    features: ArrayLike
    thresholds: ArrayLike

    def votes(self, x: ArrayLike) -> Any:
        """Votes ``[m, n]`` of points ``[m, d]``; see `pvmincq_jax.stump_votes`."""
        check_points("x", x)
        if not is_traced(self.features) and np.max(np.asarray(self.features)) >= np.shape(x)[1]:
            raise ValueError(
                f"x must have more than {np.max(np.asarray(self.features))} features, which the stumps look at; it "
                f"has {np.shape(x)[1]}"
            )
        return sign_votes(_as(x, self.thresholds), self.features, self.thresholds)


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class FunctionVoters:
    """Given functions, e.g. classifiers learnt elsewhere. A pytree without leaves.

    Attributes:
      functions: each from points ``[m, d]`` to values ``[m]`` in [-1, 1].

    Example:
      >>> FunctionVoters((lambda x: np.tanh(x[:, 0]), lambda x: np.sign(x[:, 1]))).votes(np.array([[0.0, 3.0]]))
      array([[0., 1.]])
    """

    functions: tuple[Callable[[Any], Any], ...]

    def votes(self, x: ArrayLike) -> Any:
        """Votes ``[m, n]`` of points ``[m, d]``."""
        check_points("x", x)
        columns = [function(x) for function in self.functions]
        for number, column in enumerate(columns):
            if np.shape(column) != np.shape(x)[:1]:
                raise ValueError(
                    f"functions[{number}] must give one value per point ({np.shape(x)[0]}); its shape is "
                    f"{np.shape(column)}"
                )
        votes = _side_by_side(columns)
        check_bounded("functions", votes)
        return votes


class OutputVoters(NamedTuple):
    """Classifiers known by their outputs alone: the points handed to ``votes`` are the outputs ``[m, n]`` themselves.

    Attributes:
      bound: the largest size that an output may have.

    Example:
      >>> OutputVoters().votes(np.array([[1.0, -0.5]]))
      array([[ 1. , -0.5]])
    """

    bound: ArrayLike = 1.0

    def votes(self, x: ArrayLike) -> Any:
        """The outputs, checked."""
        check_points("outputs", x)
        check_bounded("outputs", x, self.bound)
        return x if is_traced(x) else np.asarray(x)


class ViewVoters(NamedTuple):
    """Families that look at one description of the objects each.

    Attributes:
      families: one per view.

    Example:
      >>> stump, points = StumpVoters(np.array([0]), np.array([0.5])), np.array([[1.0]])
      >>> ViewVoters((stump, OutputVoters())).votes([points, -points])
      array([[ 1., -1.]])
    """

    families: tuple[Any, ...]

    def votes(self, x: Sequence[ArrayLike]) -> Any:
        """Votes ``[m, n_1 + n_2 + ..]`` of objects given by one array ``[m, d_v]`` per view."""
        if not isinstance(x, list | tuple) or len(x) != len(self.families):
            raise ValueError(f"views must be a list or tuple of {len(self.families)} arrays, one per view")
        return _side_by_side([family.votes(view) for family, view in zip(self.families, x)])


def _as(x: ArrayLike, like: ArrayLike) -> ArrayLike:
    """Points in the precision of the family."""
    if is_traced(x, like):
        return x
    dtype = np.asarray(like).dtype
    return np.asarray(x, dtype if np.issubdtype(dtype, np.floating) else float)


def _side_by_side(parts: Sequence[Any]) -> Any:
    """Columns ``[m]``, or blocks of columns ``[m, n]``, as one array of votes."""
    return (jnp if is_traced(*parts) else np).column_stack(parts)


def read_votes(family: Any, x: Any) -> np.ndarray:
    """A family's votes ``[m, n]`` as a NumPy array in the precision of the points, whatever the family computes with.

    Checked here, once for all entry points: their shape, and that they are finite and within [-1, 1], or within the
    family's ``bound`` if it has one.

    Args:
      family: anything with ``votes(x)``, in JAX or NumPy.
      x: points ``[m, d]``, or one array for each view.

    Example:
      >>> class Laplacian(NamedTuple):
      ...     centers: Any
      ...     def votes(self, x):
      ...         return jnp.exp(-jnp.sum(jnp.abs(x[:, None] - self.centers), axis=-1))
      >>> read_votes(Laplacian(np.array([[0.0], [1.0]])), np.array([[0.0]])).round(3)
      array([[1.   , 0.368]])
    """
    samples = x if isinstance(x, list | tuple) else [x]
    dtype = common_dtype(*samples)
    with precision(dtype):
        votes = np.asarray(family.votes(x))
    count = np.shape(samples[0])[0]
    if votes.ndim != 2 or len(votes) != count or not votes.shape[1]:
        raise ValueError(
            f"voters must give one row of votes per point, an array [{count}, n]; its shape is {votes.shape}"
        )
    bound = _bound(family)
    # A NaN is not within the bound either.
    if not np.max(np.abs(votes)) <= bound * (1 + 1e-6):
        raise ValueError(
            f"voters must be finite and lie in [-{bound:g}, {bound:g}]; the largest size is {np.max(np.abs(votes)):g}. "
            "Squash them (tanh, 2 p - 1)"
        )
    return votes.astype(dtype, copy=False)


def _bound(family: Any) -> float:
    """The largest size that a vote may have: 1, or the family's own."""
    if isinstance(family, ViewVoters):
        return max(_bound(one) for one in family.families)
    return float(getattr(family, "bound", 1.0))


VoterKind = Literal["rbf", "stumps"] | Voters | Sequence[Callable[[Any], Any]]


def make_voters(voters: VoterKind, points: np.ndarray, gamma: float | None, stumps: int = 10) -> Any:
    """The family that ``voters=`` names: kernels on the points ``[m, d]``, so many stumps per feature, or the given."""
    if isinstance(voters, str):
        if voters == "rbf":
            check_positive("gamma", gamma)
            return GaussianVoters(points, np.asarray(gamma, points.dtype))
        if voters == "stumps":
            return StumpVoters(*stump_thresholds(points, stumps))
    elif isinstance(voters, Voters):
        return voters
    elif isinstance(voters, list | tuple) and voters and all(callable(one) for one in voters):
        return FunctionVoters(tuple(voters))
    raise ValueError(
        f"voters must be 'rbf', 'stumps', a list of functions, or a family with a method votes(x); it is {voters!r}"
    )


def on_points(voters: VoterKind) -> bool:
    """Whether the voters sit on the points of the sample, and leave the vote with them."""
    return isinstance(voters, str) and voters == "rbf"
