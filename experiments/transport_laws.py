"""Which maximum matchings are drawn, how many draws it takes, and two other ways to a mean of matchings.

  python -m experiments.transport_laws                 three tables, a few minutes
  python -m experiments.transport_laws --quick         fewer graphs and tasks

The laws. *drawn*: `pvmincq_jax.draw_matchings`, random claims and random alternating paths. *costs*: the maximum
matching of least total cost at independent exponential costs on the edges. *scaled*: no draw, but the doubly stochastic
scaling of the radius graph, the mean of largest entropy. On graphs small enough to list every perfect matching, the
first table gives the share of a point's mass that each mean puts elsewhere than the uniform law over all of them does.
The second shows how far moved points still are from those of other draws, the third what the choice of law does to the
accuracy, with the grid's point chosen as always. No task is one of Table 1.
"""

import argparse
import itertools
from collections.abc import Callable, Sequence

import jax
import numpy as np
from scipy.optimize import linear_sum_assignment

import pvmincq_jax as pvm
from experiments.shifts import Shift, first_tasks, large_tasks, shifted_task
from experiments.transport_study import accuracies
from pvmincq_jax.adaptation.transport_sweeps import MARGIN_FRACTIONS, RADIUS_MULTIPLES, learn_on_moved

__all__ = ["LAWS", "cost_matching", "main", "mean_matching", "perfect_matchings"]

_OUTSIDE = 1e6
_FADED = 1e-6
# Radii at a distance of a pair: rounding must not lose the pair.
_ABOVE = 1 + 1e-9


def _mean(plan: np.ndarray) -> pvm.ExpectedMatching:
    source, target = np.nonzero(plan > _FADED)
    return pvm.ExpectedMatching(source, target, plan[source, target])


def _graph(source: np.ndarray, target: np.ndarray, radius: float) -> np.ndarray:
    return np.linalg.norm(source[:, None] - target[None], axis=-1) <= radius


def drawn_matching(source: np.ndarray, target: np.ndarray, radius: float, draws: int, seed: int) -> np.ndarray:
    """The mean of matchings of `pvmincq_jax.draw_matchings` ``[m_s, m_t]``."""
    plan = np.zeros((len(source), len(target)))
    pairs = pvm.draw_matchings(pvm.radius_graph(source, target, radius), draws, seed=seed).expected
    plan[pairs.source, pairs.target] = pairs.weights
    return plan


def cost_matching(source: np.ndarray, target: np.ndarray, radius: float, draws: int, seed: int) -> np.ndarray:
    """The mean of maximum matchings of least cost at random costs ``[m_s, m_t]``.

    Args:
      source: ``[m_s, d]``.
      target: ``[m_t, d]``.
      radius: of the graph.
      draws: how many.
      seed: of the costs.

    Returns:
      Shares of the draws.
    """
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
        return np.asarray(pvm.scaled_matching(_graph(source, target, radius).astype(float), pairs).plan)


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


def small_graphs(count: int, draws: int) -> None:
    """Prints the first table; its last column is what chance alone does to as many draws of the uniform law."""
    names = [*LAWS, "uniform, as many draws"]
    print("| radius / bottleneck | " + " | ".join(names) + " |\n" + "|---" * (len(names) + 1) + "|")
    for multiple in (1.0, 1.3, 1.6):
        gaps: dict[str, list[float]] = {name: [] for name in names}
        for number in range(count):
            rng = np.random.default_rng([7000, number])
            source, target = rng.uniform(size=(7, 2)), rng.uniform(size=(7, 2))
            radius = multiple * pvm.bottleneck_radius(source, target) * _ABOVE
            every = perfect_matchings(_graph(source, target, radius))
            exact = mean_matching(every)
            plans = {name: law(source, target, radius, draws, number) for name, law in LAWS.items()}
            plans[names[-1]] = mean_matching(every[rng.integers(len(every), size=draws)])
            for name, plan in plans.items():
                gaps[name].append(np.abs(plan - exact).sum() / (2 * len(exact)))
        print(
            f"| {multiple} | " + " | ".join(f"{100 * np.mean(gaps[name]):.1f} %" for name in names) + " |", flush=True
        )


def settle(tasks: Sequence[Shift]) -> None:
    """Prints the second table."""
    print("\n| draws | moved points apart | votes apart | accuracy of the choice |\n|---|---|---|---|")
    for draws in (1, 4, 16, 64, 256):
        apart, votes, accuracy = [], [], []
        for shift in tasks:
            data = shifted_task(shift)
            size = np.sqrt(np.sum(np.var(data.target, axis=0)))
            given = data.source, data.source_labels, data.target
            both = [pvm.fit_transport_validated(*given, draws=draws, seed=seed, progress=False) for seed in (1, 2)]
            one, other = (found.sweep.transports for found in both)
            gaps = [np.mean(np.sum((a.moved - b.moved) ** 2, axis=1)) for a, b in zip(one, other)]
            apart.append(np.sqrt(np.mean(gaps)) / size)
            values = [np.sign(found.sweep.target_values) for found in both]
            votes.append(np.mean(values[0] != values[1]))
            accuracy += [accuracies(found.sweep, data)[found.choice.grid_index] for found in both]
        cells = f"{100 * np.mean(apart):.1f} % | {100 * np.mean(votes):.1f} % | {100 * np.mean(accuracy):.1f} %"
        print(f"| {draws} | {cells} |", flush=True)


def compare(tasks: Sequence[Shift], draws: int = 64) -> None:
    """Prints the third table."""
    print(
        "\n| task | " + " | ".join(f"{name}: chosen, best" for name in LAWS) + " |\n" + "|---" * (len(LAWS) + 1) + "|"
    )
    means: dict[str, list[float]] = {name: [] for name in LAWS}
    for shift in tasks:
        data = shifted_task(shift)
        smallest = pvm.bottleneck_radius(data.source, data.target) * _ABOVE
        gammas, cells = pvm.default_gammas(data.target), []
        for name, law in LAWS.items():
            moved = [
                pvm.barycentres(
                    data.source,
                    data.target,
                    _mean(law(data.source, data.target, multiple * smallest, draws, 1)),
                    pvm.perturbed_variation(data.source, data.target, multiple * smallest),
                    multiple * smallest,
                )
                for multiple in RADIUS_MULTIPLES
            ]
            sweep = learn_on_moved(moved, data.source_labels, data.target, gammas, np.array(MARGIN_FRACTIONS))
            found = accuracies(sweep, data)
            chosen = found[pvm.choose(sweep, pvm.transport_criterion(sweep)).grid_index]
            means[name].append(float(chosen))
            cells.append(f"{100 * chosen:.1f}, {100 * np.max(found):.1f}")
        print(f"| {shift.group}, {shift.angle}°, noise {shift.noise} | " + " | ".join(cells) + " |", flush=True)
    print("| mean of the choices | " + " | ".join(f"{100 * np.mean(means[name]):.1f}" for name in LAWS) + " |")


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the three tables."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.transport_laws",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="three small graphs and one task")
    options = parser.parse_args(arguments)
    tasks = [first_tasks()[16], first_tasks()[29], *large_tasks()[8:16:3], *large_tasks()[17:20:2]]
    small_graphs(3 if options.quick else 20, 200 if options.quick else 1000)
    settle(tasks[:1] if options.quick else tasks[:3])
    compare(tasks[:1] if options.quick else tasks)


if __name__ == "__main__":
    main()
