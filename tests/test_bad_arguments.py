"""Every public function refuses a bad argument by its name; the calls are in `tests.bad_arguments`."""

import inspect
import re
import subprocess
import sys
from types import FunctionType

import pytest

import pvmincq_jax as pvm
from pvmincq_jax import estimators, scorers
from tests.bad_arguments import Bad, bad_values, calls

CLASSES = {name: getattr(module, name) for module in (estimators, scorers) for name in module.__all__}
FUNCTIONS = [name for name in pvm.__all__ if isinstance(getattr(pvm, name), FunctionType)]
NAMES = [*FUNCTIONS, *CLASSES]

# Arguments that may be None, though None is not their default.
NONE = {"folds", "most_points", "top_fraction", "sample_weight", "random_state"}
# Lists to choose from; numbers that may be arrays, entry by entry; samples of any size.
LISTS = {"radii", "margins", "gammas", "multiples", "levels", "thresholds"}
RATES = {"gibbs_risk", "disagreement", "m", "kl", "delta", "disagreement_m", "mu", "eps_h"}
OF_RATES = {name for name in FUNCTIONS if "gibbs_risk" in inspect.signature(getattr(pvm, name)).parameters}
OF_RATES |= {"gibbs_deviation_bound", "disagreement_deviation_bound"}
SAMPLES = {"source", "target", "x", "centers", "outputs", "affinity", "unlabelled_votes"}
# Functions that work under jit do not look at the numbers of JAX arrays, and answer with NaN or a status.
TRACED = {
    "pvmincq_jax.voting.cbound", "pvmincq_jax.voting.mincq", "pvmincq_jax.voting.voters", "pvmincq_jax.matching.soft",
    "pvmincq_jax.bounds.domain", "pvmincq_jax.bounds.deviation", "pvmincq_jax.bounds.self_bounds",
    "pvmincq_jax.voting.box_qp",
}  # fmt: skip
TRACED_TOO = {"move", "apply_map"}
# What else is a value like any other.
ALLOWED = {
    ("metric", "infinite"),  # the order of a Minkowski distance: Chebyshev's
    ("mu", "negative"),
    ("class_weight", "dict"),
    ("path", "text"),
}
ALLOWED_BY = {
    ("vote_margin", "votes", "a row less"),
    ("solve_box_qp", "factor", "a row less"),
    ("solve_box_qp", "level", "negative"),
    ("transport_sweep", "radii", "empty"),  # nobody is matched
    ("gibbs_deviation_bound", "weights", "a row less"),
    ("gibbs_deviation_bound", "weights", "empty"),
    ("gibbs_deviation_bound", "weights", "vector"),
    *((name, given, "vector") for name in CLASSES for given in ("radius", "margin", "gamma")),
    *((name, "source_labels", "text for numbers") for name in ("label_shift", "detect_shift")),
}


def is_allowed(name: str, argument: str, kind: str) -> bool:
    """Whether a call with such a value may return."""
    parameters = inspect.signature(CLASSES.get(name) or getattr(pvm, name)).parameters
    if kind == "None":
        return argument in NONE or (argument in parameters and parameters[argument].default is None)
    if kind == "NaN on a device":
        return name in TRACED_TOO or (name in FUNCTIONS and getattr(pvm, name).__module__ in TRACED)
    return (
        (argument, kind) in ALLOWED
        or (name, argument, kind) in ALLOWED_BY
        or (kind == "vector" and argument in LISTS)
        or (kind in ("empty", "vector", "rank 3") and argument in RATES and name in OF_RATES)
        or (kind == "a row less" and argument in SAMPLES)
    )


@pytest.fixture(scope="module")
def every_call(tmp_path_factory):
    return calls(str(tmp_path_factory.mktemp("models") / "model.npz"))


def test_every_public_function_has_a_call(every_call):
    assert set(every_call) == set(NAMES)
    for name in FUNCTIONS:
        parameters = inspect.signature(getattr(pvm, name)).parameters
        assert set(every_call[name][1]) <= set(parameters), name
        assert set(parameters) - set(every_call[name][1]) <= {"options"}, name
    for name, kind in CLASSES.items():
        assert set(inspect.signature(kind).parameters) <= set(every_call[name][1]), name


def says_which(error: ValueError, argument: str, bad: Bad, arguments: dict) -> bool:
    """Whether the error names the argument; of two lengths that differ, either may be named."""
    named = arguments if bad.kind == "a row less" else [argument]
    return any(re.search(rf"\b{one}\b", str(error)) for one in named)


@pytest.mark.parametrize("name", NAMES)
def test_a_bad_argument_is_refused_by_name(every_call, name):
    function, arguments = every_call[name]
    for argument, valid in arguments.items():
        for bad in bad_values(valid):
            if not is_allowed(name, argument, bad.kind):
                with pytest.raises(ValueError) as raised:  # noqa: PT011
                    function(**arguments | {argument: bad.value})
                assert says_which(raised.value, argument, bad, arguments), (argument, bad)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_what_is_allowed_returns_or_is_refused_by_name(every_call, name):
    function, arguments = every_call[name]
    function(**arguments)
    for argument, valid in arguments.items():
        for bad in bad_values(valid):
            if is_allowed(name, argument, bad.kind) and argument != "path":
                try:
                    function(**arguments | {argument: bad.value})
                except ValueError as error:
                    if not says_which(error, argument, bad, arguments):
                        raise


# In float32, to which numbers are cast after they were looked at: LAPACK's SVD may never return from infinity.
HUGE = """
import jax, numpy as np
import pvmincq_jax as pvm
labels = np.resize([-1.0, 1.0], 40)
points = np.random.default_rng(0).normal(size=(40, 6)) + labels[:, None]
votes, ones, mask = np.tanh(points), np.ones(40), np.arange(6) < 3
carried = pvm.self_label(points, labels, points, 1.0)
calls = {
    "votes of vote_factor": lambda: pvm.vote_factor(1e39 * votes),
    "votes of vote_factor, infinite when weighed": lambda: pvm.vote_factor(1e37 * votes),
    "votes of vote_factor with a rank": lambda: pvm.vote_factor(1e39 * votes, rank=3),
    "votes of mincq": lambda: pvm.mincq(1e39 * votes, labels, 0.1),
    "votes of mincq with a mask": lambda: pvm.mincq(1e39 * votes, labels, 0.1, voter_mask=mask),
    "votes of max_margin": lambda: pvm.max_margin(1e39 * votes, labels),
    "sample_weights of vote_factor": lambda: pvm.vote_factor(votes, sample_weights=1e308 * ones),
    "sample_weights of vote_factor, cast": lambda: pvm.vote_factor(votes, sample_weights=1e300 * ones),
    "sample_weights of mincq": lambda: pvm.mincq(votes, labels, 0.1, sample_weights=1e300 * ones),
    "bound of adapt_votes": lambda: pvm.adapt_votes(1e300 * votes, carried, margin=0.1, bound=1e301),
    "source of label_shift": lambda: pvm.label_shift(1e200 * points, labels, points),
    "metric of match": lambda: pvm.match(points, points, 1.0, metric=1e308 * np.eye(6)),
    "source_weights of pv_mincq": lambda: pvm.pv_mincq(
        points, labels, points, radius=1.0, margin=0.1, gamma=1.0, source_weights=1e308 * ones
    ),
}
for name, call in calls.items():
    try:
        call()
    except ValueError as error:
        assert str(error).startswith(name.split()[0]), (name, error)
    else:
        raise AssertionError(name)
traced = jax.jit(lambda votes, weights: pvm.vote_factor(votes, sample_weights=weights, rank=3))
for scale, weight in ((1e39, 1.0), (1.0, 1e39)):
    assert np.all(np.isnan(traced(np.float32(scale) * votes.astype("f"), np.float32(weight) * ones.astype("f")).left))
"""


def test_huge_numbers_end():
    subprocess.run([sys.executable, "-c", HUGE], check=True, timeout=200)
