"""Matchings beside SciPy's Dinic, radii and the PV curve beside matchings, many draws beside as many matchings."""

import argparse
import time
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

import pvmincq_jax as pvm
from experiments.bench.common import PeakMemory, best_seconds, emit, versions
from pvmincq_jax.datasets import draw_moons
from pvmincq_jax.matching.curve import PVCurve
from pvmincq_jax.matching.graph import radius_graph

__all__ = ["add_arguments", "run"]

# (points, radius): 12.4 million edges; the quick one has a few thousand.
_DENSE = {"full": (10_000, 0.486), "quick": (300, 0.4)}
_SPARSE = {"full": 100_000, "quick": 1_000}
_CURVE = {"full": 300, "quick": 40}
_RADII = {"full": (300, 2_000, 5_000), "quick": (60,)}
# Clouds by the dimensions of their normal laws; moons have none.
_CLOUDS = {"moons": None, "normal 5": 5, "normal 20": 20}
_BOTTLENECK = {"full": (10_000, 100_000), "quick": (700,)}
_DRAWS = {"full": (300, 2_000), "quick": (60,)}
_EDGES_PER_POINT = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument("--quick", action="store_true", help="small sizes: to see that it runs, not for figures")
    parser.add_argument("--repeats", type=int, default=2, help="runs of the dense matching, of which the best counts")
    parser.add_argument("--seed", type=int, default=0, help="of the samples and of the matchings")


def _samples(points: int, angle: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return draw_moons(points // 2, rng)[0], draw_moons(points // 2, rng, angle=angle)[0]


def _dinic(source: np.ndarray, target: np.ndarray, radius: float) -> int:
    """The plain way with SciPy: the same graph, from the points, as a unit network."""
    graph = radius_graph(source, target, radius)
    sources, targets = graph.source_rows.size, graph.target_rows.size
    begin, end = sources + targets, sources + targets + 1
    # The rows of the network in order, so that no sorting of its own slows the comparison down.
    starts = np.concatenate([graph.starts, graph.starts[-1] + np.arange(1, targets + 1)])
    starts = np.concatenate([starts, [starts[-1] + sources, starts[-1] + sources]])
    heads = np.concatenate([graph.neighbours + sources, np.full(targets, end), np.arange(sources)]).astype(np.int32)
    arcs = np.ones(heads.size, dtype=np.int32)
    network = csr_array((arcs, heads, starts.astype(np.int32)), shape=(end + 1, end + 1))
    return int(maximum_flow(network, begin, end, method="dinic").flow_value)


def _dense_row(size: str, repeats: int, seed: int) -> dict[str, Any]:
    points, radius = _DENSE[size]
    source, target = _samples(points, 30.0, seed)
    edges = radius_graph(source, target, radius).neighbours.size
    with PeakMemory() as memory:
        matching = pvm.match(source, target, radius, seed=seed)
    pairs = _dinic(source, target, radius)
    seconds = best_seconds(
        {
            "match": lambda: pvm.match(source, target, radius, seed=seed),
            "dinic": lambda: _dinic(source, target, radius),
        },
        repeats,
    )
    return {
        "row": "dense",
        "points": points,
        "edges": edges,
        "pairs": matching.source.size,
        "dinic_pairs": pairs,
        "seconds": seconds["match"],
        "dinic_seconds": seconds["dinic"],
        "ratio": seconds["match"] / seconds["dinic"],
        "peak_mb": memory.megabytes,
    }


def _sparse_row(size: str, seed: int) -> dict[str, Any]:
    points = _SPARSE[size]
    rng = np.random.default_rng(seed)
    source, target = rng.uniform(size=(points, 2)), rng.uniform(size=(points, 2))
    # Uniform points in the unit square: points * pi r^2 of them within r, but for the border.
    radius = float(np.sqrt(_EDGES_PER_POINT / (np.pi * points)))
    start = time.perf_counter()
    with PeakMemory() as memory:
        matching = pvm.match(source, target, radius, seed=seed)
    seconds = time.perf_counter() - start
    edges = radius_graph(source, target, radius).neighbours.size
    return {
        "row": "sparse",
        "points": points,
        "edges": edges,
        "pairs": matching.source.size,
        "seconds": seconds,
        "peak_mb": memory.megabytes,
    }


def _curve_row(size: str, repeats: int, seed: int) -> dict[str, Any]:
    points = _CURVE[size]
    source, target = _samples(points, 50.0, seed)
    curve = pvm.pv_curve(source, target)
    seconds = best_seconds({"curve": lambda: pvm.pv_curve(source, target)}, repeats)["curve"]
    start = time.perf_counter()
    singles = [pvm.perturbed_variation(source, target, radius) for radius in curve.radii]
    single_seconds = time.perf_counter() - start
    return {
        "row": "curve",
        "points": points,
        "steps": curve.radii.size,
        "equal": bool(np.array_equal(singles, curve.pv)),
        "seconds": seconds,
        "matching_per_step_seconds": single_seconds,
        "ratio": single_seconds / seconds,
    }


def _radii_row(points: int, cloud: str, repeats: int, seed: int) -> dict[str, Any]:
    """Exact radii as multiples of one matching at the bottleneck radius, the largest that is asked for."""
    source, target = _samples(points, 30.0, seed)
    dimensions = _CLOUDS[cloud]
    if dimensions is not None:
        source, target = np.random.default_rng(seed).normal(size=(2, points, dimensions))
        target += 0.5
    radius = pvm.bottleneck_radius(source, target)
    levels = np.array([0.6, 0.4, 0.3, 0.2, 0.1, 0.05, 0.0])
    found: dict[str, Any] = {}

    def keep(name: str, value: Any) -> None:
        found[name] = value

    seconds = best_seconds(
        {
            "matching": lambda: pvm.match(source, target, radius, seed=seed),
            "bottleneck": lambda: pvm.bottleneck_radius(source, target),
            "seven_levels": lambda: keep("levels", pvm.grid_radii(source, target, levels, "pv")),
            "curve": lambda: keep("curve", pvm.pv_curve(source, target)),
        },
        repeats,
    )
    at_levels = PVCurve(*found["curve"]).at(found["levels"])
    return {
        "row": "radii",
        "cloud": cloud,
        "points": points,
        "matching_radius": radius,
        "equal": bool(found["curve"].radii[-1] == radius and np.all(at_levels <= levels + 1e-12)),
        "matching_seconds": seconds["matching"],
        **{f"{name}_seconds": seconds[name] for name in ("bottleneck", "seven_levels", "curve")},
        **{f"{name}_ratio": seconds[name] / seconds["matching"] for name in ("bottleneck", "seven_levels", "curve")},
    }


def _bottleneck_row(points: int, seed: int) -> dict[str, Any]:
    """The bottleneck radius of two uniform samples of the unit square."""
    rng = np.random.default_rng(seed)
    source, target = rng.uniform(size=(points, 2)), rng.uniform(size=(points, 2))
    start = time.perf_counter()
    with PeakMemory() as memory:
        radius = pvm.bottleneck_radius(source, target)
    seconds = time.perf_counter() - start
    return {
        "row": "bottleneck",
        "points": points,
        "radius": radius,
        "pv": pvm.perturbed_variation(source, target, radius),
        "pv_below": pvm.perturbed_variation(source, target, float(np.nextafter(radius, 0))),
        "seconds": seconds,
        "peak_mb": memory.megabytes,
    }


def _draws_row(points: int, draws: int, repeats: int, seed: int) -> dict[str, Any]:
    source, target = _samples(points, 30.0, seed)
    radius = 0.3
    seconds = best_seconds(
        {
            "shared": lambda: pvm.draw_matchings(radius_graph(source, target, radius), draws, seed=seed),
            "alone": lambda: [pvm.match(source, target, radius, seed=seed + k) for k in range(draws)],
        },
        repeats,
    )
    return {
        "row": "draws",
        "points": points,
        "edges": radius_graph(source, target, radius).neighbours.size,
        "draws": draws,
        "seconds": seconds["shared"],
        "from_scratch_seconds": seconds["alone"],
        "ratio": seconds["alone"] / seconds["shared"],
    }


def run(args: argparse.Namespace) -> None:
    """Prints a row for each comparison."""
    size = "quick" if args.quick else "full"
    emit({"row": "versions", "seed": args.seed, **versions("numpy", "scipy")}, args.json)
    emit(_dense_row(size, args.repeats, args.seed), args.json)
    emit(_sparse_row(size, args.seed), args.json)
    emit(_curve_row(size, args.repeats, args.seed), args.json)
    for points in _RADII[size]:
        for cloud in _CLOUDS:
            emit(_radii_row(points, cloud, args.repeats, args.seed), args.json)
    for points in _BOTTLENECK[size]:
        emit(_bottleneck_row(points, args.seed), args.json)
    for points in _DRAWS[size]:
        emit(_draws_row(points, 64, args.repeats, args.seed), args.json)
