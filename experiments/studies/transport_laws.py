"""Which maximum matchings are drawn, how many draws it takes, and two other ways to a mean of matchings.

  python -m experiments.studies.transport_laws                 three tables, a few minutes
  python -m experiments.studies.transport_laws --quick         fewer graphs and tasks

The laws. *drawn*: `pvmincq_jax.draw_matchings`, random claims and random alternating paths. *costs*: the maximum
matching of least total cost at independent exponential costs on the edges. *scaled*: no draw, but the doubly stochastic
scaling of the radius graph, the mean of largest entropy. On graphs small enough to list every perfect matching, the
first table gives the share of a point's mass that each mean puts elsewhere than the uniform law over all of them does.
The second shows how far moved points still are from those of other draws, the third what the law does to the accuracy
of MinCq on moved points, in the median and at best over a grid. No task is one of Table 1.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from scipy.optimize import linear_sum_assignment

import pvmincq_jax as pvm
from experiments.run.command import Command, as_table, number, write
from experiments.run.shifts import Shift, first_tasks, large_tasks, shifted_task
from experiments.run.study import Study, run_study
from experiments.studies.transport_study import accuracies
from pvmincq_jax.adaptation.transport import barycentres
from pvmincq_jax.datasets import DomainTask
from pvmincq_jax.matching.graph import radius_graph
from pvmincq_jax.matching.matching import ExpectedMatching

__all__ = ["LAWS", "compute", "cost_matching", "main", "mean_matching", "perfect_matchings"]

_OUTSIDE = 1e6
_FADED = 1e-6
# Radii at a distance of a pair: rounding must not lose the pair.
_ABOVE = 1 + 1e-9
_MULTIPLES = (1.0, 1.3, 1.6)
# What the laws are compared at, in units of the bottleneck radius.
_RADII = (1.15, 1.3, 1.5, 1.75, 2.05, 2.4)
# Of the largest margin.
_FRACTIONS = (0.01, 0.05, 0.1, 0.2, 0.5)
_DRAWS = (1, 4, 16, 64, 256)
_CHANCE = "uniform, as many draws"
_SETTLED = ("moved points apart", "votes apart", "accuracy of the choice")


def _mean(plan: np.ndarray) -> ExpectedMatching:
    source, target = np.nonzero(plan > _FADED)
    return ExpectedMatching(source, target, plan[source, target])


def _graph(source: np.ndarray, target: np.ndarray, radius: float) -> np.ndarray:
    return np.linalg.norm(source[:, None] - target[None], axis=-1) <= radius


def drawn_matching(source: np.ndarray, target: np.ndarray, radius: float, draws: int, seed: int) -> np.ndarray:
    """The mean of matchings of `pvmincq_jax.draw_matchings` ``[m_s, m_t]``."""
    plan = np.zeros((len(source), len(target)))
    pairs = pvm.draw_matchings(radius_graph(source, target, radius), draws, seed=seed).expected
    plan[pairs.source, pairs.target] = pairs.weights
    return plan


def cost_matching(source: np.ndarray, target: np.ndarray, radius: float, draws: int, seed: int) -> np.ndarray:
    """The mean of maximum matchings of least cost at random costs: shares of the draws ``[m_s, m_t]``."""
    graph, rng = _graph(source, target, radius), np.random.default_rng(seed)
    plan = np.zeros(graph.shape)
    for _ in range(draws):
        # A pair outside the graph costs more than all pairs inside, so as few as can be are taken, and then dropped.
        rows, columns = linear_sum_assignment(np.where(graph, rng.exponential(size=graph.shape), _OUTSIDE))
        kept = graph[rows, columns]
        plan[rows[kept], columns[kept]] += 1 / draws
    return plan


def scaled(source: np.ndarray, target: np.ndarray, radius: float, draws: int, seed: int) -> np.ndarray:
    """The mean of largest entropy ``[m_s, m_t]``; draws and seed have no part in it."""
    del draws, seed
    pairs = round((1 - pvm.perturbed_variation(source, target, radius)) * len(source))
    with jax.enable_x64(True):
        return np.asarray(pvm.sinkhorn_matching(_graph(source, target, radius).astype(float), pairs).plan)


LAWS: dict[str, Callable[[np.ndarray, np.ndarray, float, int, int], np.ndarray]] = {
    "drawn": drawn_matching,
    "costs": cost_matching,
    "scaled": scaled,
}


def perfect_matchings(graph: np.ndarray) -> np.ndarray:
    """Every perfect matching of a small graph, as the column of each row ``[count, m]``."""
    size, rows = len(graph), np.arange(len(graph))
    return np.array([columns for columns in itertools.permutations(range(size)) if graph[rows, columns].all()])


def mean_matching(matchings: np.ndarray) -> np.ndarray:
    """The mean of perfect matchings ``[count, m]`` as shares of pairs ``[m, m]``."""
    return np.mean(matchings[:, :, None] == np.arange(matchings.shape[1]), axis=0)


def tasks() -> list[Shift]:
    """Of the second table the first three, of the third all."""
    return [first_tasks()[16], first_tasks()[29], *large_tasks()[8:16:3], *large_tasks()[17:20:2]]


def _small_graphs(settings: dict[str, Any], multiple: float) -> dict[str, Any]:
    """A row of the first table; its last column is what chance alone does to as many draws of the uniform law."""
    draws = settings["draws"]
    gaps: dict[str, list[float]] = {name: [] for name in (*LAWS, _CHANCE)}
    for seed in range(settings["graphs"]):
        rng = np.random.default_rng([7000, seed])
        source, target = rng.uniform(size=(7, 2)), rng.uniform(size=(7, 2))
        radius = multiple * pvm.bottleneck_radius(source, target) * _ABOVE
        every = perfect_matchings(_graph(source, target, radius))
        exact = mean_matching(every)
        plans = {name: law(source, target, radius, draws, seed) for name, law in LAWS.items()}
        plans[_CHANCE] = mean_matching(every[rng.integers(len(every), size=draws)])
        for name, plan in plans.items():
            gaps[name].append(np.abs(plan - exact).sum() / (2 * len(exact)))
    return {name: float(np.mean(values)) for name, values in gaps.items()}


def _settle(draws: int, shift: Shift) -> dict[str, Any]:
    """How far moved points and votes of two draws are apart, and the accuracy of the choice."""
    data = shifted_task(shift)
    size = np.sqrt(np.sum(np.var(data.target, axis=0)))
    given = data.source, data.source_labels, data.target
    both = [pvm.fit_transport_validated(*given, draws=draws, seed=seed, progress=False) for seed in (1, 2)]
    one, other = (found.sweep.transports for found in both)
    gaps = [np.mean(np.sum((a.moved - b.moved) ** 2, axis=1)) for a, b in zip(one, other)]
    values = [np.sign(found.sweep.target_values) for found in both]
    chosen = [accuracies(found.sweep, data)[found.choice.grid_index] for found in both]
    figures = np.sqrt(np.mean(gaps)) / size, np.mean(values[0] != values[1]), np.mean(chosen)
    return dict(zip(_SETTLED, map(float, figures)))


def _compare(law: str, shift: Shift, draws: int = 64) -> dict[str, Any]:
    """The median and the best accuracy over a grid of radii, gammas and margins, under a law."""
    data = shifted_task(shift)
    smallest = pvm.bottleneck_radius(data.source, data.target) * _ABOVE
    moved = [
        barycentres(
            data.source,
            data.target,
            _mean(LAWS[law](data.source, data.target, multiple * smallest, draws, 1)),
            pvm.perturbed_variation(data.source, data.target, multiple * smallest),
            multiple * smallest,
        )
        for multiple in _RADII
    ]
    found = [_learnt(one, gamma, data) for one in moved for gamma in pvm.default_gammas(data.target)]
    return {"median": float(np.median(found)), "best": float(np.max(found))}


def _learnt(transport: pvm.Transport, gamma: float, data: DomainTask) -> np.ndarray:
    """Test accuracies ``[k]`` of MinCq on moved points, at fractions of the largest margin."""
    points, labels, weights = np.asarray(transport.moved), data.source_labels, np.asarray(transport.weights)
    with jax.enable_x64(True):
        votes = np.asarray(pvm.rbf_votes(points, points, gamma))
        most = pvm.max_margin(votes, labels, sample_weights=weights, voter_mask=weights > 0)

        def learn(fraction: jax.Array) -> jax.Array:
            return pvm.mincq(votes, labels, fraction * most, sample_weights=weights, voter_mask=weights > 0).weights

        values = jax.vmap(learn)(jax.numpy.array(_FRACTIONS)) @ pvm.rbf_votes(data.test, points, gamma).T
    return np.mean(np.asarray(values) * data.test_labels > 0, axis=-1)


def compute(settings: dict[str, Any], table: str, row: Any, task: int) -> dict[str, Any]:
    """One row of the first table, one task of a row of the second, or one law on a task of the third, as shares.

    The table is "graphs", "draws" or "laws"; its row a multiple of the bottleneck radius, draws, or a law. Settings are
    ``graphs`` of the first table, and ``draws`` of each.
    """
    if table == "graphs":
        return {"figures": _small_graphs(settings, row)}
    return {"figures": _settle(row, tasks()[task]) if table == "draws" else _compare(row, tasks()[task])}


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the options and writes the three tables."""
    usual = {"graphs": 20, "draws": 1000, "tasks": len(tasks())}
    parser = Command("studies.transport_laws", __doc__, usual, {"graphs": 3, "draws": 200, "tasks": 1})
    parser.add_argument("--graphs", type=number(1), help=f"small ones{parser.default('graphs')}")
    parser.add_argument("--draws", type=number(1), help=f"of matchings, in small graphs{parser.default('draws')}")
    parser.add_argument("--tasks", type=number(1), help=f"the first so many{parser.default('tasks')}")
    options = parser.parse_args(arguments)
    shifts = tasks()[: options.tasks]
    cells: list[tuple[Any, ...]] = [("graphs", multiple, 0) for multiple in _MULTIPLES]
    cells += [("draws", draws, task) for draws in _DRAWS for task in range(len(shifts[:3]))]
    cells += [("laws", law, task) for law in LAWS for task in range(len(shifts))]
    settings = {"graphs": options.graphs, "draws": options.draws}

    def say(one: dict[str, Any]) -> str:
        return ", ".join(f"{name} {100 * figure:.1f} %" for name, figure in one["figures"].items())

    ranges = {"figures": (0.0, 1.0)}
    study = Study(
        "experiments.studies.transport_laws:compute",
        ("table", "row", "task"),
        settings,
        cells,
        say,
        ranges=ranges,
    )
    records = run_study(study, options).whole()
    found = {cell: {name: 100 * figure for name, figure in one["figures"].items()} for cell, one in records.items()}
    graphs = {f"{multiple}": list(found["graphs", multiple, 0].values()) for multiple in _MULTIPLES}
    settled = {
        f"{draws}": [
            float(np.mean([found["draws", draws, task][name] for task in range(len(shifts[:3]))])) for name in _SETTLED
        ]
        for draws in _DRAWS
    }
    compared: dict[str, list[Any]] = {
        f"{shift.group}, {shift.angle}°, noise {shift.noise}": [
            "{median:.1f}, {best:.1f}".format(**found["laws", law, task]) for law in LAWS
        ]
        for task, shift in enumerate(shifts)
    }
    compared["mean of the best"] = [
        float(np.mean([found["laws", law, task]["best"] for task in range(len(shifts))])) for law in LAWS
    ]
    tables = [
        "All figures in per cent.",
        as_table("radius / bottleneck", [*LAWS, _CHANCE], graphs),
        as_table("draws", _SETTLED, settled),
        as_table("task", [f"{law}: median, best" for law in LAWS], compared),
    ]
    write(options.out, "transport_laws", "\n\n".join(tables))


if __name__ == "__main__":
    main()
