"""Array aliases, units, precision, and the codes by which traced functions report how they ended."""

import contextlib
import enum
import functools
import inspect
from collections.abc import Callable
from typing import Any, Literal, ParamSpec, TypeVar

import jax
import numpy as np

from pvmincq_jax._fork import check_process

__all__: list[str] = []

Array = jax.Array
ArrayLike = jax.Array | np.ndarray | float | int
# A NumPy array where all is concrete, else one of JAX.
AnyArray = Any
MarginUnit = Literal["fraction", "absolute"]
_Function = TypeVar("_Function", bound=Callable)
_Arguments = ParamSpec("_Arguments")
_Read = TypeVar("_Read")
_Result = TypeVar("_Result")
RadiusUnit = Literal["pv", "bottleneck", "absolute"]


class Status(enum.IntEnum):
    """How a traced computation ended: failure is data, one code per vmapped problem.

    Arrays of status hold plain integers, which compare equal to the members.

    Example:
      >>> int(Status.SOLVED), Status(1).sentence
      (0, 'the margin is not in (0, mu_max]: no weights inside the box reach it')
    """

    SOLVED = 0
    INFEASIBLE = 1
    MAX_ITERATIONS = 2
    BAD_INPUT = 3

    @property
    def sentence(self) -> str:
        """What the code means, for a person."""
        return _SENTENCES[self]


_SENTENCES = {
    Status.SOLVED: "solved to the stated accuracy",
    Status.INFEASIBLE: "the margin is not in (0, mu_max]: no weights inside the box reach it",
    Status.MAX_ITERATIONS: "stopped before the stated accuracy was reached",
    Status.BAD_INPUT: "the input holds NaN or infinity, labels outside [-1, 1], negative sample weights, "
    "or no weight or voter at all",
}


def brief(value: Any) -> str:
    """A value in words that fit on a few lines: of arrays with more than four numbers the dtype and the shape.

    Example:
      >>> brief((np.zeros((3, 2)), np.float64(0.5), "fraction"))
      "(float64[3, 2], 0.5, 'fraction')"
    """
    if isinstance(value, tuple):
        names = getattr(value, "_fields", None)
        if names is not None:
            return f"{type(value).__name__}({', '.join(f'{n}={brief(part)}' for n, part in zip(names, value))})"
        if len(value) > 4:
            return f"({brief(value[0])}, ... {len(value)} in all)"
        return f"({', '.join(map(brief, value))}{',' if len(value) == 1 else ''})"
    if not hasattr(value, "dtype") or isinstance(value, jax.core.Tracer):
        return repr(value)
    return f"{value.dtype}{list(value.shape)}" if value.size > 4 else repr(np.asarray(value).tolist())


def common_dtype(*arrays: ArrayLike) -> np.dtype:
    """float32 if all floating arrays are at most that wide, else float64."""
    sizes = [array.dtype.itemsize for array in map(np.asarray, arrays) if np.issubdtype(array.dtype, np.floating)]
    return np.dtype(np.float32 if sizes and max(sizes) <= 4 else np.float64)


def takes_options_of(other: Callable, *but: str) -> Callable[[_Function], _Function]:
    """A decorator for functions that hand keywords on to another one: their signature shows them, but for some.

    Of a NamedTuple of options, these are its fields.

    Example:
      >>> def scale(x, *, factor=2.0, offset=0.0):
      ...     return factor * x + offset
      >>> @takes_options_of(scale)
      ... def scale_twice(x, *, offset=1.0, **options):
      ...     return scale(scale(x, **options), offset=offset)
      >>> inspect.signature(scale_twice)
      <Signature (x, *, offset=1.0, factor=2.0)>
    """

    def mark(function: _Function) -> _Function:
        signature, others = inspect.signature(function), inspect.signature(other).parameters.values()
        named = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
        known = {*signature.parameters, *but}
        given = [one for one in others if one.kind is one.KEYWORD_ONLY or isinstance(other, type)]
        added = [one.replace(kind=one.KEYWORD_ONLY) for one in given if one.name not in known]
        function.__signature__ = signature.replace(parameters=[*named, *added])  # type: ignore[attr-defined]
        return function

    return mark


def takes_arguments_of(
    read: Callable[_Arguments, _Read],
) -> Callable[[Callable[[_Read], _Result]], Callable[_Arguments, _Result]]:
    """A decorator for functions of what another one reads and checks: they take the arguments of that one.

    Example:
      >>> def read(x, factor=2.0):
      ...     return factor * float(x)
      >>> @takes_arguments_of(read)
      ... def square(value):
      ...     return value**2
      >>> square("3"), inspect.signature(square)
      (36.0, <Signature (x, factor=2.0)>)
    """

    def decorate(function: Callable[[_Read], _Result]) -> Callable[_Arguments, _Result]:
        @functools.wraps(function)
        def called(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
            return function(read(*args, **kwargs))

        result = inspect.signature(function).return_annotation
        called.__signature__ = inspect.signature(read).replace(return_annotation=result)  # type: ignore[attr-defined]
        return called

    return decorate


def precision(dtype: np.dtype) -> contextlib.AbstractContextManager:
    """A scope, of this thread alone, in which JAX computes and keeps arrays of this dtype as they are."""
    check_process()
    return jax.enable_x64(True) if dtype == np.float64 else contextlib.nullcontext()
