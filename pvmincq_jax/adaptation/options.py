"""Checks that sweeps, fits and what is computed from a sweep share, made before any work is done."""

from collections.abc import Callable
from functools import partial
from typing import Any, get_args

import jax
import numpy as np

from pvmincq_jax._checks import (
    check_callable,
    check_count,
    check_finite,
    check_flag,
    check_instance,
    check_margins,
    check_number,
    check_one_of,
    check_positive,
    check_real,
    check_sample_weights,
    check_seed,
    read_samples,
)
from pvmincq_jax._threads import Progress
from pvmincq_jax._types import MarginUnit, RadiusUnit
from pvmincq_jax.adaptation.sweeps import Sweep
from pvmincq_jax.matching.curve import check_radii
from pvmincq_jax.matching.space import check_metric
from pvmincq_jax.voting.centers import CenterKind
from pvmincq_jax.voting.families import one_family
from pvmincq_jax.voting.program import Solver

__all__: list[str] = []


def _check_mesh(name: str, value: Any) -> None:
    if value is not None and not isinstance(value, jax.sharding.Mesh):
        raise ValueError(f"{name} must be a jax.sharding.Mesh or None; it is {value!r}")


def _check_progress(name: str, value: Progress) -> None:
    if not callable(value):
        check_flag(name, value, None)


_RULES: dict[str, Callable[[str, Any], Any]] = {
    "draws": partial(check_count, least=1),
    "seed": check_seed,
    "most_voters": partial(check_count, least=1),
    "centers": partial(check_one_of, allowed=get_args(CenterKind)),
    "radius_unit": partial(check_one_of, allowed=get_args(RadiusUnit)),
    "margin_unit": partial(check_one_of, allowed=get_args(MarginUnit)),
    "solver": partial(check_one_of, allowed=get_args(Solver)),
    "matching": partial(check_one_of, allowed=("joint", "each")),
    "mesh": _check_mesh,
    "progress": _check_progress,
    "criterion": check_callable,
    "include_identity": lambda name, value: check_flag(name, value, None),
    "equal_sizes": check_flag,
    "most_points": lambda name, value: None if value is None else check_count(name, value, 2),
}


def check_options(**options: Any) -> None:
    """Those of the options that have a rule; `draws` is not given where the default decides.

    Example:
      >>> check_options(seed=0, solver="simplex")
      Traceback (most recent call last):
          ...
      ValueError: solver must be 'interior_point' or 'jaxopt'; it is 'simplex'
    """
    for name, value in options.items():
        if name in _RULES:
            _RULES[name](name, value)


def check_grid(source: np.ndarray, **options: Any) -> None:
    """The same, and of a grid for these source points its lists, metric and weights; no radii are for the caller."""
    check_options(**options)
    if "margins" in options:
        check_margins(options["margins"], options.get("margin_unit", "fraction"))
    radii = options.get("radii")
    if radii is not None and check_real("radii", radii).shape != (0,):
        check_radii(radii, options.get("radius_unit", "absolute"))
    if "metric" in options:
        check_metric(options["metric"], np.shape(source)[1])
    for name in ("source_weights", "identity_weights"):
        if options.get(name) is not None:
            (weights,) = read_samples(**{name: options[name]})
            check_sample_weights(name, weights, len(source))


def check_sweep(sweep: Any) -> None:
    """Raises on what is no grid of votes."""
    check_instance("sweep", sweep, Sweep, "pvmincq_jax.sweep or pvmincq_jax.transport_sweep")


def grid_of_point(radius: Any, margin: float, gamma: float | None, options: dict[str, Any]) -> dict[str, Any]:
    """The options of a fit at one point as those of a grid, checked by their own names; for the identity, no radius.

    Example:
      >>> grid_of_point(0.5, 0.1, None, {"voters": "stumps"})
      {'voters': 'stumps', 'radii': [0.5], 'margins': [0.1], 'gammas': None}
    """
    check_options(**options)
    check_margins([margin], options.get("margin_unit", "fraction"), "margin")
    one_family(options.get("voters", "rbf"), gamma)
    if not options.get("include_identity"):
        check = check_finite if options.get("radius_unit") == "pv" else check_positive
        check_number("radius", radius, check)
    radii, gammas = ([] if one is None else [one] for one in (radius, gamma))
    return options | {"radii": radii, "margins": [margin], "gammas": gammas or None}
