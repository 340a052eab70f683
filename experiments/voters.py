"""Where the kernels should sit: on the target points, on the source points, or on both; and how many are enough.

  python -m experiments.voters --runs 3
  python -m experiments.voters --runs 3 --most 25 50 100 200 300 600      so many at most, both forms

The first compares places, with PV-MinCq+ on the moons; the second caps, with the classifiers as they come, on moons
and digits of 600 points a domain, and on penguins, of which there are 34 to 146. Accuracy on target points that were
not learnt from, mean and standard error over the runs. The seeds are not those of the reported tables, nor are the
digits' pairs and changes: the defaults of the library were chosen by this command.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pvmincq_jax as pvm
from experiments.run.cells import Settings, accuracy
from experiments.run.command import Command, as_table, names, number, write
from experiments.run.study import run_accuracies
from experiments.run.tasks import digits_task, penguins_task
from pvmincq_jax.datasets import TASKS, DomainTask, moons_task

__all__ = ["CAPPED", "compute", "main"]

_LOW, _HIGH = (0, 1, 2, 3, 4), (5, 6, 7, 8, 9)
# From a seed to a task.
CAPPED: dict[str, Callable[[int], DomainTask]] = {
    **{f"moons {angle}": partial(moons_task, angle, per_class=300) for angle in ("40", "60")},
    **{f"digits {change}": partial(digits_task, _LOW, _HIGH, change, most=600) for change in ("thicker", "thinner")},
    **{f"{a} to {b}": partial(penguins_task, a, b) for a, b in (("Adelie", "Gentoo"), ("Gentoo", "Adelie"))},
}


def compute(settings: dict[str, Any], voters: str, task: str, run: int) -> dict[str, Any]:
    """Test accuracy in per cent: of PV-MinCq+ with voters on "target", say, or of a form with "label, 300" at most."""
    seed = settings["seed"] + run
    if "," not in voters:
        data = Settings(**settings).draw(task, run)
        fit = pvm.fit_validated(data.source, data.source_labels, data.target, centers=voters, seed=seed, progress=False)
        return {"accuracy": float(accuracy(pvm.decision(fit.model, data.test), data.test_labels))}
    from pvmincq_jax.estimators import PVMinCqClassifier, PVTransportClassifier

    form, most = voters.split(", ")
    classifier: Any = PVMinCqClassifier if form == "label" else PVTransportClassifier
    model = classifier(most_voters=int(most), random_state=seed)
    data = CAPPED[task](seed)
    model.fit_domains(data.source, data.source_labels, data.target)
    return {"accuracy": 100 * float(model.score(data.test, data.test_labels))}


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the options and writes a row for each choice of voters."""
    usual = {"tasks": ["40", "50", "60", "translation"], "runs": 3, "seed": 1000, "per_class": 150, "test_size": 1500}
    parser = Command("voters", __doc__, usual, {"tasks": ["50"], "runs": 1})
    parser.add_argument(
        "--tasks", nargs="+", action=names(TASKS), help=f"of {' '.join(TASKS)}{parser.default('tasks')}"
    )
    parser.add_argument("--per-class", type=number(5), help=f"source and target points{parser.default('per_class')}")
    parser.add_argument("--test-size", type=number(2), help=f"fresh target points{parser.default('test_size')}")
    parser.add_argument("--most", nargs="+", type=number(1), help="so many voters at most, in place of where they sit")
    parser.add_argument(
        "--capped",
        nargs="+",
        action=names(CAPPED),
        default=[*CAPPED],
        help=f"tasks for --most, of {'; '.join(CAPPED)} (default: all)",
    )
    options = parser.parse_args(arguments)
    rows, tasks = ["target", "source", "both"], options.tasks
    settings: dict[str, Any] = Settings(options.seed, options.per_class, options.test_size)._asdict()
    if options.most:
        rows = [f"{form}, {most}" for form in ("label", "transport") for most in options.most]
        settings, tasks = {"seed": options.seed}, options.capped
    found = run_accuracies("voters", ("voters", "task"), (rows, tasks), settings, options)
    table = {row: [[one["accuracy"] for one in found[row, task]] for task in tasks] for row in rows}
    text = f"Accuracy in per cent, mean ± standard error over {options.runs} runs, seed {options.seed}\n\n"
    write(options.out, "voters", text + as_table("voters", tasks, table))


if __name__ == "__main__":
    main()
