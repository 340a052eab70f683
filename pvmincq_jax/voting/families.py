"""Families of voters as values: small pytrees with ``votes(x) -> [m, n]``, which a model holds and a fit is given.

A new family is one class, see `Voters`: nothing else in the package knows its name. Kernels, stumps and outputs are in
`voters`, beside the functions that they are.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from pvmincq_jax._checks import check_finite, check_list, check_points, check_real, is_traced, on_device
from pvmincq_jax._types import ArrayLike, common_dtype, precision
from pvmincq_jax.voting.voters import GaussianVoters, OutputVoters, StumpVoters

__all__ = ["FunctionVoters", "ViewVoters", "Voters"]


@runtime_checkable
class Voters(Protocol):
    """Any family: a value with the method ``votes``, in JAX or NumPy; a pytree, if a model of it is to be traced.

    What else a family may have, all of it optional:

    - ``on(points)``: the family on the points ``[m, d]`` of a sample, which each fit hands in;
    - ``one_per_point``: True if there is then one voter on each point, so that ``centers`` and ``most_voters`` of a fit
      say which points these are, and a voter takes part if its point does;
    - ``bound``: the largest size of a vote, 1 unless given.

    Its hyperparameter is an axis of the grid if ``voters=`` is a function from a value to a family, such as the class
    itself. Of a class, ``default_values(target)`` are the values where ``gammas`` is None, and ``at(value)`` makes the
    family if calling the class does not. Of equal scores the smallest value is chosen, so let it make the smoothest
    voters: 1 / width, not a width.

    Example:
      >>> class Laplacian(NamedTuple):
      ...     width: float
      ...     centers: Any = None
      ...     one_per_point = True  # without an annotation: of the class, no field
      ...     def on(self, points):
      ...         return self._replace(centers=points)
      ...     def votes(self, x):
      ...         return jnp.exp(-jnp.sum(jnp.abs(x[:, None] - self.centers), axis=-1) / self.width)
      >>> import pvmincq_jax as pvm
      >>> task = pvm.datasets.moons_task("30", 0, per_class=8)
      >>> grid = {"radii": [0.6], "margins": [0.5], "folds": 2}
      >>> fit = pvm.fit_validated(*task[:3], **grid, voters=Laplacian, gammas=[0.5, 2.0])
      >>> fit.choice.gamma == fit.model.voters.width
      True
    """

    def votes(self, x: Any) -> Any:
        """What each voter says of each point ``[m, n]``."""
        ...


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
                    f"voters[{number}], a function, must give one value per point ({np.shape(x)[0]}); its shape is "
                    f"{np.shape(column)}"
                )
        return _side_by_side(columns)


class ViewVoters(NamedTuple):
    """Families that look at one description of the objects each.

    Attributes:
      families: one per view.

    Example:
      >>> stump, points = StumpVoters(np.array([0]), np.array([0.5])), np.array([[1.0]])
      >>> ViewVoters((stump, stump)).votes([points, -points])
      array([[ 1., -1.]])
    """

    families: tuple[Any, ...]

    def votes(self, x: Sequence[ArrayLike]) -> Any:
        """Votes ``[m, n_1 + n_2 + ..]`` of objects given by one array ``[m, d_v]`` per view."""
        if not isinstance(x, list | tuple) or len(x) != len(self.families):
            raise ValueError(f"views must be a list or tuple of {len(self.families)} arrays, one per view")
        return _side_by_side([family.votes(view) for family, view in zip(self.families, x)])


class JoinedVoters(NamedTuple):
    """The voters of several families together, as a committee has them.

    Attributes:
      families: each with ``votes(x)``.

    Example:
      >>> kernel, stump = GaussianVoters(np.array([[0.0]]), 2.0), StumpVoters(np.array([0]), np.array([0.5]))
      >>> JoinedVoters((kernel, stump)).votes(np.array([[1.0]])).round(3)
      array([[0.135, 1.   ]])
    """

    families: tuple[Any, ...]

    @property
    def centers(self) -> Any:
        """Of all voters ``[n, d]``, or None where not all have centres."""
        centers: list[Any] = [getattr(family, "centers", None) for family in self.families]
        return None if any(one is None for one in centers) else np.concatenate(centers)

    def votes(self, x: ArrayLike) -> Any:
        """Votes ``[m, n_1 + n_2 + ..]`` of points ``[m, d]``."""
        return _side_by_side([family.votes(x) for family in self.families])


def _side_by_side(parts: Sequence[Any]) -> Any:
    """Columns ``[m]``, or blocks of columns ``[m, n]``, as one array of votes."""
    return (jnp if is_traced(*parts) else np).column_stack(parts)


def read_votes(family: Any, x: Any, dtype: np.dtype | None = None) -> np.ndarray:
    """A family's votes ``[m, n]`` as a NumPy array in the precision of the points, whatever the family computes with.

    Checked here, once for all entry points: their shape, and that they are finite and within [-1, 1], or within the
    family's ``bound`` if it has one.

    Args:
      family: anything with ``votes(x)``, in JAX or NumPy.
      x: points ``[m, d]``, or one array for each view.
      dtype: of the votes; None for that of the points.

    Example:
      >>> read_votes(FunctionVoters((lambda x: jnp.tanh(x[:, 0]),)), np.array([[0.5]])).round(3)
      array([[0.462]])
    """
    samples = x if isinstance(x, list | tuple) else [x]
    dtype = common_dtype(*samples) if dtype is None else dtype
    with contextlib.nullcontext() if _is_numpy(family) else precision(dtype):
        votes = np.asarray(family.votes(x))
    count = np.shape(samples[0])[0]
    if votes.ndim != 2 or len(votes) != count or not votes.shape[1]:
        raise ValueError(
            f"voters must give one row of votes per point, an array [{count}, n]; its shape is {votes.shape}"
        )
    bound = _bound(family)
    # A NaN is not within the bound either.
    largest = max(np.max(votes, initial=0.0), -np.min(votes, initial=0.0))
    if not largest <= bound * (1 + 1e-6):
        raise ValueError(
            f"voters must give finite votes in [-{bound:g}, {bound:g}]; the largest size is {largest:g}. "
            "Squash them (tanh, 2 p - 1)"
        )
    return votes.astype(dtype, copy=False)


def _is_numpy(family: Any) -> bool:
    """Whether a family computes in NumPy alone, in the precision of its points."""
    if isinstance(family, ViewVoters | JoinedVoters):
        return all(map(_is_numpy, family.families))
    return isinstance(family, GaussianVoters | StumpVoters | OutputVoters) and not on_device(family)


def _bound(family: Any) -> float:
    """The largest size that a vote may have: 1, or the family's own."""
    if isinstance(family, ViewVoters | JoinedVoters):
        return max(_bound(one) for one in family.families)
    return float(getattr(family, "bound", 1.0))


VoterKind = (
    Literal["rbf", "stumps"] | Voters | Sequence[Voters] | Sequence[Callable[[Any], Any]] | Callable[[float], Voters]
)

_NAMED: dict[str, Any] = {"rbf": GaussianVoters, "stumps": StumpVoters()}


class FamilyGrid(NamedTuple):
    """Families of voters as an axis of a grid.

    Attributes:
      values: that the families are made of ``[g]``; NaN for one family without.
      families: one for each value; those with a method ``on`` are not yet on points.
    """

    values: np.ndarray
    families: tuple[Any, ...]


def family_grid(
    voters: VoterKind, values: Any = None, points: np.ndarray | None = None, name: str = "gammas"
) -> FamilyGrid:
    """The families that ``voters=`` and ``gammas=`` of a fit name.

    Args:
      voters: a name, a family, a list of families, whose values are their numbers, a function from a value to a family
        or a class with ``at(value)``, or a list of functions of points, which are one family together.
      values: ``[g]``, or None for all families of a list, or for the default values of a class.
      points: of the target, for default values; None if there are to be none.
      name: of the values, in errors.

    Example:
      >>> family_grid("rbf", [0.5, 2.0]).families
      (GaussianVoters(centers=None, gamma=0.5), GaussianVoters(centers=None, gamma=2.0))
      >>> family_grid([StumpVoters(), StumpVoters(per_feature=3)]).values
      array([0., 1.])
    """
    kind: Any = _NAMED.get(voters) if isinstance(voters, str) else voters
    listed = list(kind) if isinstance(kind, list | tuple) and not _is_family(kind) else []
    if listed and all(callable(one) and not _is_family(one) for one in listed):
        kind, listed = FunctionVoters(tuple(listed)), []
    if _is_family(kind):
        if values is not None and not np.all(np.isnan(check_real(name, values))):
            raise ValueError(f"{name} must be None: voters is one family, of no value; it is {values}")
        return FamilyGrid(np.array([np.nan]), (kind,))
    if listed and all(map(_is_family, listed)):
        values = np.arange(float(len(listed))) if values is None else check_list(name, values)
        if not np.all(np.isin(values, np.arange(len(listed)))):
            raise ValueError(
                f"{name} must be numbers of families, 0 to {len(listed) - 1}, as voters is a list of them; it holds "
                f"{', '.join(f'{value:g}' for value in values)}"
            )
        return FamilyGrid(values, tuple(listed[int(value)] for value in values))
    if not callable(kind):
        raise ValueError(
            "voters must be 'rbf', 'stumps', a family with a method votes(x), a list of families, a function from a "
            f"value to a family, or a list of functions from points to votes; it is {voters!r}"
        )
    if values is None:
        if points is None or not hasattr(kind, "default_values"):
            raise ValueError(f"{name} must be a number, of which voters={voters!r} makes a family; it is None")
        values = kind.default_values(points)
    values = check_list(name, values)
    check_finite(name, values)
    try:
        families = tuple(map(getattr(kind, "at", kind), values.tolist()))
    except ValueError as error:
        raise ValueError(f"{name} must be values of voters: {error}") from error
    if not all(map(_is_family, families)):
        raise ValueError(f"voters, a function, must give a family with a method votes(x); it gives {families[0]!r}")
    return FamilyGrid(values, families)


def one_family(voters: VoterKind, value: float | None) -> Any:
    """The family that ``voters=`` and ``gamma=`` name."""
    families = family_grid(voters, None if value is None else [value], name="gamma").families
    if len(families) > 1:
        raise ValueError(f"gamma must be the number of one of the {len(families)} families in voters; it is None")
    return families[0]


def _is_family(value: Any) -> bool:
    return isinstance(value, Voters) and not isinstance(value, type)
