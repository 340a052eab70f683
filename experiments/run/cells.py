"""The cells of Table 1: one method on one task in one run."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from experiments.run.methods import METHODS, grid_fingerprint

if TYPE_CHECKING:
    from pvmincq_jax.datasets import DomainTask

__all__ = ["Settings", "TableCell", "accuracy", "compute", "conditions"]


class TableCell(NamedTuple):
    """One method on one task in one run, counted from 0."""

    method: str
    task: str
    run: int


class Settings(NamedTuple):
    """What all cells of a table share.

    Attributes:
      seed: run i draws data, folds and matchings from seed + i.
      per_class: points of each class in the source, and in the target.
      test_size: fresh target points.
      noise: of the moons.
    """

    seed: int = 2014
    per_class: int = 150
    test_size: int = 1500
    noise: float = 0.05

    def draw(self, task: str, run: int = 0) -> "DomainTask":
        """The samples of a task in a run."""
        from pvmincq_jax.datasets import moons_task  # and JAX: see `experiments.run.methods`

        return moons_task(task, self.seed + run, per_class=self.per_class, test_size=self.test_size, noise=self.noise)


def conditions(settings: Settings, method: str) -> dict[str, Any]:
    """What must agree for two cells of a method to stand in one table."""
    from pvmincq_jax.datasets import TRANSLATION

    grid = {f"the grid of {method}": grid_fingerprint(method)}
    return {**settings._asdict(), "translation": list(TRANSLATION), **grid}


def accuracy(values: Any, labels: np.ndarray) -> Any:
    """In per cent, over the last axis; a value of 0 or NaN is wrong."""
    return 100 * np.mean(np.asarray(values) * labels > 0, axis=-1)


def compute(settings: dict[str, Any], method: str, task: str, run: int) -> dict[str, Any]:
    """Draws the task, tunes the method, and only then looks at the test sample.

    Settings are those of the table, and ``oracle``: also find the grid's best point in hindsight, for methods that
    offer it. Runs are counted from 0. The ``accuracy`` is in per cent; it is None, with a ``note``, where all
    self-labels were the same.
    """
    own = Settings(**{name: settings[name] for name in Settings._fields})
    data = own.draw(task, run)
    fitted = METHODS[method].fit(data.source, data.source_labels, data.target, own.seed + run)
    found = float(accuracy(fitted.decision(data.test), data.test_labels))
    figures: dict[str, Any] = {
        "accuracy": None if fitted.degenerate else found,
        "params": fitted.params,
        "criterion": fitted.criterion,
        "seed": own.seed + run,
    }
    if fitted.degenerate:
        figures["note"] = "all self-labels are the same: nothing to learn"
    if settings.get("oracle") and fitted.grid_values is not None:
        figures["oracle_accuracy"] = float(np.max(accuracy(fitted.grid_values(data.test), data.test_labels)))
    return figures
