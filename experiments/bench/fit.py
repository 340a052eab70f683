"""Whole fits at a user's sizes, as they come: seconds, peak memory and accuracy, beside what a user would take instead.

Each fit has a process of its own, which finds nothing compiled. The seconds are those of the fit: compiling, the choice
of all parameters and the final vote; those of the imports before it stand beside them. Memory is the peak beyond what
the process had by then. ``SVC`` is scikit-learn's, on the source alone, C and gamma by a grid search of five folds;
``OT + SVC`` the same on source points that skada's entropic optimal transport has moved. Both learn from 3 000 points
of a larger sample, drawn at random. ``linear OT + SVC`` moves all points by skada's linear map, and ``boosting`` is
scikit-learn's `HistGradientBoostingClassifier` on the whole source, as it comes.

With ``--beside PATH`` both forms of this checkout are fitted beside those of another checkout of the library, at PATH,
in fresh processes in turn: the first fit with the import of the library, and a second fit on fresh data of the same
size in the same process; the best of several rounds of each, and ratios of ours to theirs.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import pvmincq_jax
from experiments.bench.common import PeakMemory, emit, versions
from experiments.run.command import end
from experiments.run.results import package_versions
from experiments.run.shifts import wide_task
from pvmincq_jax.datasets import DomainTask

__all__ = ["add_arguments", "measure", "run"]

# Points a domain, and features.
SIZES = ((600, 20), (600, 784), (3000, 5), (10_000, 10), (10_000, 1000), (100_000, 10))
# Points that an SVC, or an entropic transport, learns from at most.
_MOST = 3000
_QUICK = ((60, 3), (120, 3))
_BESIDE = ((300, 2), (600, 20), (3000, 5))
_BESIDE_QUICK = ((40, 2),)
# For growth, features have to be few: a size of many more is a case of its own.
_FEW = 20
_SEARCHED = {"C": [0.1, 1.0, 10.0, 100.0], "gamma": [0.1, 0.5, 2.0, 8.0]}

_FITS = {"label": "fit_validated", "transport": "fit_transport_validated"}
# What a process of its own runs with either checkout: a fit, and another one on fresh data.
_TWO_FITS = """
import json, sys, time
began, busy = time.perf_counter(), time.process_time()
import numpy, pvmincq_jax
data = numpy.load(sys.argv[1])
figures = {"home": pvmincq_jax.__file__, "version": pvmincq_jax.__version__}
for name in ("first", "second"):
    task = [data[f"{name}_{part}"] for part in ("source", "labels", "target")]
    if name == "second":
        began, busy = time.perf_counter(), time.process_time()
    getattr(pvmincq_jax, sys.argv[2])(*task, progress=False)
    figures[f"{name}_seconds"], figures[f"{name}_cpu_seconds"] = time.perf_counter() - began, time.process_time() - busy
print(json.dumps(figures))
"""

Predict = Callable[[np.ndarray], np.ndarray]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``benchmark fit``."""
    parser.add_argument("--quick", action="store_true", help="60 and 120 points in place of 600 to 100 000")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--methods", nargs="+", choices=[*METHODS], default=[*METHODS], help="some of them")
    parser.add_argument("--points", nargs="+", type=int, help="samples of these sizes alone (default: all)")
    parser.add_argument(
        "--beside", type=Path, metavar="PATH", help="another checkout, whose fits are timed beside ours"
    )
    parser.add_argument("--rounds", type=int, default=3, help="with --beside: the best of so many (default: 3)")


def _pv_mincq(form: str) -> Callable[[DomainTask], Predict]:
    def fit(task: DomainTask) -> Predict:
        function = getattr(pvmincq_jax, _FITS[form])
        return partial(pvmincq_jax.predict, function(*task[:3], progress=False).model)

    return fit


def _svc(points: np.ndarray, labels: np.ndarray) -> Predict:
    from sklearn.model_selection import GridSearchCV
    from sklearn.svm import SVC

    # Gammas in units of one over the mean squared distance, as `gamma="scale"` has it.
    scale = 1 / (points.shape[1] * points.var())
    searched = {"C": _SEARCHED["C"], "gamma": [gamma * scale for gamma in _SEARCHED["gamma"]]}
    return GridSearchCV(SVC(), searched, cv=5).fit(points, labels).predict


def _some(size: int) -> np.ndarray:
    return np.random.default_rng(0).permutation(size)[:_MOST]


def _source_only(task: DomainTask) -> Predict:
    rows = _some(len(task.source))
    return _svc(task.source[rows], task.source_labels[rows])


def _moved(task: DomainTask, adapter: str, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    import skada

    source, target = task.source[rows], task.target[columns]
    both, domain = np.concatenate([source, target]), np.repeat([1, -2], [len(source), len(target)])
    return getattr(skada, adapter)().fit_transform(both, sample_domain=domain)[: len(source)]


def _transported(task: DomainTask) -> Predict:
    rows, columns = _some(len(task.source)), _some(len(task.target))
    return _svc(_moved(task, "EntropicOTMappingAdapter", rows, columns), task.source_labels[rows])


def _transported_linearly(task: DomainTask) -> Predict:
    every, rows = np.arange(len(task.source)), _some(len(task.source))
    moved = _moved(task, "LinearOTMappingAdapter", every, np.arange(len(task.target)))
    return _svc(moved[rows], task.source_labels[rows])


def _boosted(task: DomainTask) -> Predict:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(random_state=0).fit(task.source, task.source_labels).predict


METHODS: dict[str, Callable[[DomainTask], Predict]] = {
    "label": _pv_mincq("label"),
    "transport": _pv_mincq("transport"),
    "SVC": _source_only,
    "OT + SVC": _transported,
    "linear OT + SVC": _transported_linearly,
    "boosting": _boosted,
}


def measure(method: str, points: int, features: int, seed: int, began: float) -> dict[str, Any]:
    """One fit in this process.

    Args:
      method: of `METHODS`.
      points: of each domain.
      features: how many.
      seed: of the task.
      began: when the process did, by `time.perf_counter`.

    Returns:
      Seconds of the imports and of the fit, those of all cores together, peak memory in MB, and accuracy on fresh
      target points in per cent.
    """
    import jax

    if "OT" in method:
        import skada  # noqa: F401

    imports = time.perf_counter() - began
    jax.config.update("jax_enable_compilation_cache", False)
    task = wide_task(points, features, seed)
    with PeakMemory() as memory:
        start, used = time.perf_counter(), time.process_time()
        predict = METHODS[method](task)
        seconds, of_cores = time.perf_counter() - start, time.process_time() - used
    right = np.mean(predict(task.test) == task.test_labels)
    return {
        "import_seconds": imports,
        "seconds": seconds,
        "cpu_seconds": of_cores,
        "peak_mb": memory.megabytes,
        "accuracy": 100 * float(right),
    }


def _two_fits(home: Path, data: Path, form: str) -> dict[str, Any]:
    """A first and a second fit of the library at ``home``, in a process of its own that finds nothing compiled."""
    environment = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    environment |= {"PYTHONPATH": str(home), "JAX_ENABLE_COMPILATION_CACHE": "false"}
    call = [sys.executable, "-c", _TWO_FITS, str(data), _FITS[form]]
    done = subprocess.run(call, cwd=data.parent, env=environment, capture_output=True, text=True)
    if done.returncode:
        end(f"the fit of {home} failed: {done.stderr.strip().splitlines()[-1]}")
    figures = json.loads(done.stdout.splitlines()[-1])
    if not Path(figures.pop("home")).is_relative_to(home):
        end(f"--beside: the library was not imported from {home}")
    return figures


def _beside(arguments: argparse.Namespace) -> None:
    homes = {"ours": Path(pvmincq_jax.__file__).parents[1], "theirs": arguments.beside.resolve()}
    if not (homes["theirs"] / "pvmincq_jax").is_dir():
        end(f"--beside must be a checkout of the library; {homes['theirs']} has no folder pvmincq_jax")
    emit({"benchmark": "fit_beside", "seed": arguments.seed, **versions("jax", "jaxlib", "scipy")}, arguments.json)
    sizes = _BESIDE_QUICK if arguments.quick else _BESIDE
    for points, features in (size for size in sizes if size[0] in (arguments.points or size)):
        with tempfile.TemporaryDirectory() as folder:
            data = Path(folder) / "data.npz"
            samples: dict[str, Any] = {}
            for place, name in enumerate(("first", "second")):
                task = wide_task(points, features, arguments.seed + place, test_size=2)
                samples |= {f"{name}_{part}": x for part, x in zip(("source", "labels", "target"), task)}
            np.savez(data, **samples)
            for form in (form for form in _FITS if form in arguments.methods):
                rounds = [
                    {side: _two_fits(home, data, form) for side, home in homes.items()} for _ in range(arguments.rounds)
                ]
                row: dict[str, Any] = {"benchmark": "fit_beside", "points": points, "features": features, "form": form}
                row["their_version"] = rounds[0]["theirs"]["version"]
                for figure in ("first_seconds", "second_seconds", "first_cpu_seconds", "second_cpu_seconds"):
                    ours, theirs = (min(one[side][figure] for one in rounds) for side in homes)
                    row |= {f"our_{figure}": ours, f"their_{figure}": theirs, f"{figure}_ratio": ours / theirs}
                emit(row, arguments.json)


def run(arguments: argparse.Namespace) -> None:
    """Prints a row for each size and method, and how seconds grow with the points; or those of two checkouts."""
    if arguments.beside is not None:
        _beside(arguments)
        return
    if not set(arguments.methods) <= set(_FITS):
        package_versions()  # a missing package ends the benchmark before it begins
    packages = versions("jax", "jaxlib", "scikit-learn", "skada", "scipy")
    emit({"benchmark": "fit", "seed": arguments.seed, **packages}, arguments.json)
    sizes = [size for size in (_QUICK if arguments.quick else SIZES) if size[0] in (arguments.points or size)]
    seconds: dict[str, dict[int, float]] = {method: {} for method in arguments.methods}
    for number, (points, features) in enumerate(sizes):
        for method in arguments.methods:
            print(f"size {number + 1} of {len(sizes)}: {method}", file=sys.stderr, flush=True)
            call = f"measure({method!r}, {points}, {features}, {arguments.seed}, began)"
            script = f"import json; from experiments.bench.fit import measure; print(json.dumps({call}))"
            script = f"import time; began = time.perf_counter(); {script}"
            done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
            row = {"benchmark": "fit", "points": points, "features": features, "method": method}
            if done.returncode:
                emit(row | {"failed": done.stderr.strip().splitlines()[-1]}, arguments.json)
                continue
            figures = json.loads(done.stdout.splitlines()[-1])
            emit(row | figures, arguments.json)
            if features <= _FEW:
                seconds[method][points] = figures["seconds"]
    for method, each in seconds.items():
        if len(each) > 1:
            exponent = np.polyfit(np.log([*each]), np.log([*each.values()]), 1)[0]
            ends = {"from": min(each), "to": max(each)}
            emit({"benchmark": "fit_growth", "method": method, "exponent": float(exponent), **ends}, arguments.json)
