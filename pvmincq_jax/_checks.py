"""Checks of input, made before anything is traced: each raises a ValueError that names the argument.

Shapes are always checked, values in NumPy arrays and lists only. JAX arrays, traced or not, stay on their device: the
code that computes with them answers with a `Status` or NaN. Host functions turn what they read into NumPy arrays first.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np

from pvmincq_jax._types import ArrayLike, MarginUnit, brief, common_dtype

__all__: list[str] = []

# Squares of larger coordinates would overflow.
_LARGEST = 1e150
# Beyond, an integer is no number to NumPy.
_LARGEST_INTEGER = 2**64 - 1


def is_traced(*values: Any) -> bool:
    """Whether any of the values is being traced by jit, vmap or grad."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(values))


def on_device(*values: Any) -> bool:
    """Whether any of the values is a JAX array, traced or not."""
    return any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(values))


def read_samples(**arrays: Any) -> list[np.ndarray]:
    """What a host function reads, as NumPy arrays whose values can be checked."""
    for name, value in arrays.items():
        if is_traced(value):
            raise ValueError(
                f"{name} is traced, and this function runs on the host: call it outside jit, vmap and grad"
            )
    return [value if hasattr(value, "toarray") else _as_array(name, value, np) for name, value in arrays.items()]


def check_real(name: str, value: Any) -> Any:
    """Real numbers, as an array: NumPy's, or JAX's where the value is one. No text, and no sparse matrix."""
    if hasattr(value, "toarray"):
        raise ValueError(f"{name} is sparse, a {type(value).__name__}; give a dense array, such as {name}.toarray()")
    array = _as_array(name, value, jnp if on_device(value) else np)
    imaginary = jnp.issubdtype(array.dtype, np.complexfloating)
    if (jnp.issubdtype(array.dtype, np.number) and not imaginary) or array.dtype == bool:
        return array
    entries = array.ravel().tolist() if isinstance(array, np.ndarray) else []
    strange = (entry for entry in entries if not isinstance(entry, float | int) or abs(entry) > _LARGEST_INTEGER)
    said = "be a number; it is" if array.ndim == 0 else "hold numbers; it holds"
    said = said.replace("number", "real number") if imaginary else said
    raise ValueError(f"{name} must {said} {next(strange, array.dtype)!r}")


def _as_array(name: str, value: Any, xp: Any) -> Any:
    try:
        return xp.asarray(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must hold numbers, in rows of one length; it is {brief(value)}") from None


def check_rank(name: str, value: Any, rank: int) -> None:
    """Static, so it holds for traced values too."""
    try:
        shape = np.shape(value)
    except ValueError:
        raise ValueError(f"{name} must be an array of rank {rank}, with rows of one length; it is {value!r}") from None
    if len(shape) != rank:
        raise ValueError(f"{name} must be an array of rank {rank}; its shape is {shape}")


def check_length(name: str, value: Any, length: int, what: str) -> None:
    """A vector with one entry per `what`."""
    check_rank(name, value, 1)
    if np.shape(value)[0] != length:
        raise ValueError(f"{name} must have one entry per {what} ({length}); it has {np.shape(value)[0]}")


def check_finite(name: str, value: Any) -> None:
    """Real numbers, no NaN, no infinity."""
    array = check_real(name, value)
    wrong = np.count_nonzero(~np.isfinite(array)) if isinstance(array, np.ndarray) else 0
    if wrong:
        raise ValueError(f"{name} holds {wrong} entries that are NaN or infinite")


def check_number(name: str, value: Any, check: Callable[[str, Any], Any] = check_finite) -> None:
    """One number, such that each entry of an array would pass this check."""
    check(name, value)
    if np.ndim(value):
        raise ValueError(f"{name} must be one number; its shape is {np.shape(value)}")


def check_weights(name: str, value: Any, length: int, what: str = "voter") -> None:
    """Finite numbers of any sign, one per voter."""
    check_length(name, value, length, what)
    check_finite(name, value)


def check_points(name: str, value: ArrayLike) -> None:
    """A sample: [m, d], at least one row, finite."""
    check_rank(name, value, 2)
    if 0 in np.shape(value):
        raise ValueError(f"{name} is empty: its shape is {np.shape(value)}")
    check_finite(name, value)


def check_same_dimension(
    first_name: str, first: ArrayLike, second_name: str, second: ArrayLike, what: str = "features"
) -> None:
    """Two samples of one space, or votes of the same voters."""
    m, n = np.shape(first)[1], np.shape(second)[1]
    if m != n:
        raise ValueError(f"{first_name} and {second_name} must have the same number of {what}; they have {m} and {n}")


def check_rows(name: str, votes: ArrayLike, points: ArrayLike, what: str = "point") -> None:
    """Votes on these points, or another description of the same objects."""
    check_points(name, votes)
    if np.shape(votes)[0] != np.shape(points)[0]:
        raise ValueError(f"{name} must have one row per {what} ({np.shape(points)[0]}); it has {np.shape(votes)[0]}")


def check_labels(
    name: str, value: ArrayLike, length: int, *, soft: bool, sample_weights: ArrayLike | None = None
) -> None:
    """Labels in {-1, +1}, or in [-1, 1] when soft.

    Labels of 0 and 1 are taken for another coding of the classes if points of both kinds count.
    """
    check_length(name, value, length, "sample point")
    check_finite(name, value)
    if on_device(value):
        return
    labels = np.asarray(value)
    if soft and np.any(np.abs(labels) > 1):
        raise ValueError(f"{name} must lie in [-1, 1]; the largest size is {np.max(np.abs(labels)):g}")
    known = sample_weights is not None and not is_traced(sample_weights) and np.shape(sample_weights) == labels.shape
    counted = labels[np.asarray(sample_weights) > 0] if known else labels
    if soft and np.array_equal(np.unique(counted), (0, 1)):
        raise ValueError(f"{name} are all 0 or 1, and classes are -1 and +1 here: give 2 * {name} - 1")
    if not soft and (strange := np.setdiff1d(labels, (-1, 1))).size:
        raise ValueError(f"{name} must be -1 or +1; it also holds {', '.join(f'{s:g}' for s in strange[:5])}")


def check_sample_weights(name: str, value: ArrayLike | None, length: int, dtype: Any = float) -> None:
    """Non-negative, finite, not all zero, with a finite sum in the dtype that they are used in."""
    if value is None:
        return
    check_length(name, value, length, "sample point")
    check_not_negative(name, value)
    if on_device(value):
        return
    if not np.any(value):
        raise ValueError(f"{name} are all zero: no sample point counts")
    with np.errstate(over="ignore"):
        if not np.isfinite(np.sum(value, dtype=dtype)):
            raise ValueError(f"{name} must have a finite sum in {np.dtype(dtype)}; the largest is {np.max(value):g}")


def check_positive(name: str, value: Any) -> None:
    """Finite and above zero."""
    array = check_real(name, value)
    if isinstance(array, np.ndarray) and not np.all((array > 0) & np.isfinite(array)):
        raise ValueError(f"{name} must be finite and above 0; it holds {value}")


def check_not_negative(name: str, value: ArrayLike) -> None:
    """Finite numbers, 0 included."""
    check_finite(name, value)
    if not on_device(value) and np.any(np.asarray(value) < 0):
        raise ValueError(
            f"{name} must not be negative; {'the smallest' if np.ndim(value) else 'it'} is {np.min(value):g}"
        )


def check_list(name: str, values: ArrayLike | Sequence[float]) -> np.ndarray:
    """A list of numbers, at least one, as an array."""
    array = np.asarray(check_real(name, values), float)
    check_rank(name, array, 1)
    if not array.size:
        raise ValueError(f"{name} is empty")
    return array


def check_broadcast(**values: Any) -> None:
    """Numbers, or arrays of them, that go together entry by entry."""
    shapes = {name: np.shape(check_real(name, value)) for name, value in values.items()}
    try:
        np.broadcast_shapes(*shapes.values())
    except ValueError:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"shapes must fit each other, as NumPy broadcasts them; they are {listed}") from None


def check_count(name: str, value: Any, least: int, most: int = 2**31 - 1) -> int:
    """An integer between two others."""
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be an integer; it is {value!r}") from None
    if number < least:
        raise ValueError(f"{name} must be at least {least}; it is {number}")
    if number > most:
        raise ValueError(f"{name} must be at most {most}; it is {number}")
    return number


def check_seed(name: str, value: Any) -> int:
    """An integer of at most 63 bits, not negative."""
    return check_count(name, value, 0, 2**63 - 1)


def check_one_of(name: str, value: Any, allowed: Sequence[str]) -> None:
    """One of two names or more."""
    if not (isinstance(value, str) and value in allowed):
        raise ValueError(f"{name} must be {_listed(allowed)}; it is {value!r}")


def check_flag(name: str, value: Any, *others: str | None) -> None:
    """True, False, or one of others."""
    if not isinstance(value, bool | np.bool_) and not (isinstance(value, str | None) and value in others):
        raise ValueError(f"{name} must be {_listed((True, False, *others))}; it is {value!r}")


def _listed(values: Sequence[Any]) -> str:
    return f"{', '.join(map(repr, values[:-1]))} or {values[-1]!r}"


def check_instance(name: str, value: Any, kind: type, source: str) -> None:
    """A record, which some function makes."""
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be a {kind.__name__}, as {source} returns; it is of type {type(value).__name__}")


def check_samples(source: ArrayLike, target: ArrayLike) -> None:
    """Two samples of the same space, whose distances can be measured."""
    for name, points in (("source", source), ("target", target)):
        check_points(name, points)
        largest = 0.0 if on_device(points) else float(np.max(np.abs(points)))
        if largest > _LARGEST:
            raise ValueError(f"{name} holds {largest:g}; coordinates up to {_LARGEST:g} can be measured")
    check_same_dimension("source", source, "target", target)


def are_class_numbers(labels: ArrayLike) -> bool:
    """Whether labels are the numbers from 0 on of three classes or more, each of which has a point."""
    kinds = np.unique(np.asarray(labels))
    return kinds.size > 2 and np.array_equal(kinds, np.arange(kinds.size))


def check_class_labels(name: str, labels: ArrayLike, length: int, *, classes: bool = True) -> None:
    """Labels in {-1, +1}, of both classes; or with ``classes`` the numbers from 0 on of more than two."""
    check_weights(name, labels, length, "sample point")
    if classes and are_class_numbers(labels):
        return
    check_labels(name, labels, length, soft=False)
    if (kinds := np.unique(np.asarray(labels))).size < 2:
        raise ValueError(f"{name} must hold both classes, -1 and +1; every label is {kinds[0]:g}")


def check_task(source: ArrayLike, source_labels: ArrayLike, target: ArrayLike, *, classes: bool = False) -> None:
    """A labelled source sample with both classes, and a target sample of the same space; see `check_class_labels`."""
    source, source_labels, target = read_samples(source=source, source_labels=source_labels, target=target)
    check_samples(source, target)
    check_class_labels("source_labels", source_labels, np.shape(source)[0], classes=classes)


def read_task(
    source: ArrayLike, source_labels: ArrayLike, target: ArrayLike, *, classes: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A checked task, in one precision; see `check_task`."""
    source, source_labels, target = read_samples(source=source, source_labels=source_labels, target=target)
    check_task(source, source_labels, target, classes=classes)
    dtype = common_dtype(source, target)
    return np.asarray(source, dtype), np.asarray(source_labels, dtype), np.asarray(target, dtype)


def check_margins(values: ArrayLike | Sequence[float], unit: MarginUnit, name: str = "margins") -> np.ndarray:
    """A list of margins in a unit, as an array ``[k]``."""
    check_one_of("margin_unit", unit, get_args(MarginUnit))
    margins = check_list(name, values)
    largest, what = (1.0, "1] as a fraction of mu_max") if unit == "fraction" else (np.inf, "mu_max]")
    if not np.all((margins > 0) & (margins <= largest) & (margins < np.inf)):
        raise ValueError(f"{name} must be in (0, {what}; it holds {', '.join(f'{value:g}' for value in margins)}")
    return margins


def check_callable(name: str, value: Any) -> None:
    """A function, before the work that it is to judge."""
    if not callable(value):
        raise ValueError(f"{name} must be a function, such as pvmincq_jax.rs_pv; it is {value!r}")
