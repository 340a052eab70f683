"""How the criterion of PV-MinCq+ was chosen: rules without target labels against each other, on other tasks.

  python -m experiments.studies.label_study                    all tasks, about half an hour on one core
  python -m experiments.studies.label_study --quick            every eighth task
  python -m experiments.studies.label_study --sets confirmed   only tasks that no rule or weight was chosen on

"Chosen" is R_S + PV + C-bound + 4 cut + 4 gap². R_S + PV + C-bound came first, and its figures in Table 1 were seen.
The cut was then taken from the transport form, with its weight, after a look at the moons of the table at ten other
seeds (1000 to 1009) and at the set "first"; Table 1 was run with it, and it did worse than before on the penguins. The
gap, from the transport form as well, mends that on drawn species (the set "drawn") and changes little on the others.
The set "confirmed" had no part in either. Test labels judge the rules, and are never seen inside one. Tasks whose grid
holds no point above 75 % are counted apart: no rule could choose well there.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import pvmincq_jax as pvm
from experiments.run.shifts import Shift, first_tasks, shifted_task
from experiments.run.tasks import SIZES, drawn_task
from experiments.studies.transport_study import chosen_by, confirmed_tasks, run_rules

__all__ = ["RULES", "SETS", "compute", "look", "main"]


def _rule(cut: float, gap: float) -> Callable[[pvm.Sweep], np.ndarray]:
    def scores(one: pvm.Sweep) -> np.ndarray:
        return pvm.rs_pv_cbound(one) + cut * pvm.neighbour_disagreement(one) + gap * pvm.class_ratio_gap(one) ** 2

    return scores


RULES: dict[str, Callable[[pvm.Sweep], np.ndarray]] = {
    "R_S + PV": pvm.rs_pv,
    "R_S + PV + 2 risk on the self-labels": pvm.rs_pv_risk,
    "R_S + PV + C-bound": pvm.rs_pv_cbound,
    "R_S + PV + 4 cut": lambda one: pvm.rs_pv(one) + 4 * pvm.neighbour_disagreement(one),
    "R_S + PV + C-bound + 4 gap²": _rule(0, 4),
    "R_S + PV + C-bound + 4 cut": _rule(4, 0),
    "R_S + PV + C-bound + 2 cut + 4 gap²": _rule(2, 4),
    "chosen": pvm.label_criterion,
    "R_S + PV + C-bound + 6 cut + 4 gap²": _rule(6, 4),
}


class Species(NamedTuple):
    """A pair of drawn species, as a task of the study."""

    source_size: int
    target_size: int
    seed: int
    shape: str = "species"
    group: str = "drawn species"


def drawn_tasks() -> list[Species]:
    """Pairs of the sizes of the penguins' samples, at the seeds that the penguins' rules were settled on."""
    return [Species(*sizes, seed) for seed in range(1000, 1006) for sizes in SIZES]


SETS: dict[str, Callable[[], Sequence[Any]]] = {
    "first": first_tasks,
    "drawn": drawn_tasks,
    "confirmed": confirmed_tasks,
}
# Of the drawn species, grids rarely hold more than 85 %.
_LEAST = 0.75


def look(shift: Shift | Species, seed: int = 3) -> dict[str, float]:
    """The accuracy that each rule chooses on a task, with 16 matchings; the best of the grid, and the median."""
    if isinstance(shift, Species):
        data = drawn_task(shift.source_size, shift.target_size, shift.seed)
    else:
        data = shifted_task(shift)
    sweep = pvm.sweep(data.source, data.source_labels, data.target, draws=16, seed=seed, exact=False, progress=False)
    accuracy = np.mean(pvm.values_at(sweep, data.test) * data.test_labels > 0, axis=-1)
    return chosen_by(RULES, sweep, accuracy)


def compute(settings: dict[str, Any], tasks: str, number: int) -> dict[str, Any]:
    """The accuracy that each rule chooses on a task, by its set and its place there."""
    return {"accuracy": look(SETS[tasks]()[number], settings["draw_seed"])}


def main(arguments: Sequence[str] | None = None) -> None:
    """Judges the rules of the form that carries labels."""
    run_rules("label_study", __doc__, SETS, arguments, _LEAST)


if __name__ == "__main__":
    main()
