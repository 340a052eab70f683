"""Validation of any fit function without target labels: cross-validation, reverse validation, and R_S + PV.

A fit function is ``fit(source, source_labels, target, params, seed) -> model`` with ``decision(model, x) -> [m]``.
Labels are -1 and +1; or numbers from 0 of more than two classes, and ``decision(model, x) -> [m, c]`` has a value for
each.
Folds are drawn from the coordinates and the seed, so the scores do not depend on the order of the rows. Swapped,
negated or rotated columns give other folds, as another seed does.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from pvmincq_jax._samples import check_folds, fold_numbers, prepare
from pvmincq_jax._types import ArrayLike, takes_arguments_of

__all__ = ["cross_validation", "reverse_validation", "rs_pv_validation"]

Fit = Callable[[np.ndarray, np.ndarray, np.ndarray, Any, int], Any]
Decision = Callable[[Any, np.ndarray], np.ndarray]
# (source, labels [g, m_s], target, grid, seed) -> one model per point of the grid
FitGrid = Callable[[np.ndarray, np.ndarray, np.ndarray, Sequence[Any], int], Sequence[Any]]


def _error(values: np.ndarray, labels: np.ndarray) -> float:
    """The share of wrong signs, or of wrong classes; 0 has no sign and is wrong, and so is what is not a number."""
    if values.ndim == 1:
        return float(np.mean(~(labels * values > 0)))
    return float(np.mean((np.argmax(values, axis=1) != labels) | np.any(np.isnan(values), axis=1)))


def _answers(values: np.ndarray) -> np.ndarray:
    """Labels ``[m]``: signs, +1 for 0, or numbers of the classes with the largest values."""
    return np.where(values >= 0, 1.0, -1.0) if values.ndim == 1 else np.argmax(values, axis=1)


@dataclass
class _Trial:
    """What a validation is told, and the sample in canonical order."""

    fit: Fit
    decision: Decision
    source: ArrayLike
    source_labels: ArrayLike
    target: ArrayLike
    grid: Sequence[Any]
    folds: int = 5
    seed: int = 0
    _: KW_ONLY
    fit_grid: FitGrid | None = None

    def __post_init__(self) -> None:
        self.sample = prepare(self.source, self.source_labels, self.target)

    def learn(self, source: np.ndarray, labels: np.ndarray, target: np.ndarray, grid: Sequence[Any]) -> Sequence[Any]:
        """The models of a grid ``[g]``, whose labels are the same ``[m_s]`` or a row for each ``[g, m_s]``."""
        labels = np.broadcast_to(labels, (len(grid), len(source)))
        if self.fit_grid is not None:
            return self.fit_grid(source, labels, target, grid, self.seed)
        return [self.fit(source, row, target, params, self.seed) for row, params in zip(labels, grid)]

    def splits(self, *sizes: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Which source points are learnt from and which are held out, ``[m_s]`` each, fold by fold."""
        check_folds(self.folds, *np.unique(self.sample.labels, return_counts=True)[1].tolist(), *sizes)
        numbers = fold_numbers(self.sample.source, self.sample.labels, self.folds, self.seed)
        return ((numbers != fold, numbers == fold) for fold in range(self.folds))

    def errors(self, models: Sequence[Any], held: np.ndarray) -> np.ndarray:
        """Of each model on the source points that were held out ``[g]``."""
        points, labels = self.sample.source[held], self.sample.labels[held]
        return np.array([_error(self.decision(model, points), labels) for model in models])

    def cross_errors(self) -> np.ndarray:
        """The mean error on the fold that was left out ``[g]``."""
        sample, errors = self.sample, []
        for rest, held in self.splits():
            models = self.learn(sample.source[rest], sample.labels[rest], sample.target, self.grid)
            errors.append(self.errors(models, held))
        return np.mean(errors, axis=0)


@takes_arguments_of(_Trial)
def cross_validation(trial: _Trial) -> np.ndarray:
    """Plain cross-validation on the source: mean error on the fold that was left out (section 4).

    Args:
      fit: ``(source, source_labels, target, params, seed) -> model``.
      decision: ``(model, x) -> [m]``.
      source: ``[m_s, d]``.
      source_labels: ``[m_s]`` in {-1, +1}.
      target: ``[m_t, d]``, the whole of it given to every fit.
      grid: the parameters to score.
      folds: how many.
      seed: of the folds, and handed to ``fit``.
      fit_grid: fits a whole grid at once, where a method can.

    Returns: errors ``[len(grid)]``, the lower the better; a prediction that is not a number is an error.

    Example:
      >>> from pvmincq_jax.baselines import svm
      >>> source, labels = np.arange(8.0)[:, None], np.repeat([-1, 1], 4)
      >>> cross_validation(svm.fit, svm.decision, source, labels, source, svm.GRID[19:21], 2, 0).shape
      (2,)
    """
    return trial.cross_errors()


@takes_arguments_of(_Trial)
def reverse_validation(trial: _Trial) -> np.ndarray:
    """Reverse (circular) validation: is what was learnt on the target good enough to find the source's labels again?

    For each fold, learn on the other folds of source and target; label the target's other folds with the result; learn
    from these labels towards the source's other folds, which are now the unlabelled side; and take the error of that
    reverse model on the source's own fold, whose labels neither of the two models has seen. (Bruzzone and Marconcini
    2010; Zhong et al. 2010.)

    A model that gives the whole target one label has the constant of that label as its reverse. A target point with
    value 0 counts as +1. A model that is not a number at some target point has no labels to hand back, and its fold
    counts as all wrong.

    Section 3.4 names it, and prefers R_S + PV; section 4 uses it for the methods compared with.

    Args: fit, decision, source, source_labels, target, grid, folds (of both samples), seed and fit_grid, as in
      `cross_validation`.

    Returns: errors ``[len(grid)]``, the lower the better.

    Example:
      >>> from pvmincq_jax.baselines import svm
      >>> source, labels = np.arange(8.0)[:, None], np.repeat([-1, 1], 4)
      >>> reverse_validation(svm.fit, svm.decision, source, labels, source + 0.1, svm.GRID[19:21], 2, 0).shape
      (2,)
    """
    sample, errors = trial.sample, []
    splits = trial.splits(len(sample.target))
    target_numbers = fold_numbers(sample.target, None, trial.folds, trial.seed)
    for fold, (rest, held) in enumerate(splits):
        target = sample.target[target_numbers != fold]
        forward = trial.learn(sample.source[rest], sample.labels[rest], target, trial.grid)
        values = [trial.decision(model, target) for model in forward]
        missing = np.array([np.any(np.isnan(row)) for row in values])
        target_labels = np.array([_answers(row) for row in values])
        error = np.where(missing, 1.0, np.mean(sample.labels[held] != target_labels[:, :1], axis=1))
        back = np.flatnonzero(np.any(target_labels != target_labels[:, :1], axis=1) & ~missing)
        if back.size:
            points = [trial.grid[int(index)] for index in back]
            error[back] = trial.errors(trial.learn(target, target_labels[back], sample.source[rest], points), held)
        errors.append(error)
    return np.mean(errors, axis=0)


@takes_arguments_of(_Trial)
def rs_pv_validation(trial: _Trial) -> np.ndarray:
    """The paper's own criterion, R_S + PV (section 3.4): error on the source's left-out fold, plus perturbed variation.

    Args:
      fit: of a model whose ``.pv`` is the PV that it learnt at; this and decision, source, source_labels, target, grid,
        folds, seed and fit_grid as in `cross_validation`.

    Returns: scores ``[len(grid)]``, the lower the better; the PV in them is that of the whole samples.

    Example:
      >>> from pvmincq_jax.baselines import pv_svm
      >>> source, labels = np.arange(8.0)[:, None], np.repeat([-1, 1], 4)
      >>> rs_pv_validation(pv_svm.fit, pv_svm.decision, source, labels, source + 0.1, pv_svm.GRID[7:9], 2, 0).shape
      (2,)
    """
    risks, (source, labels, target, _) = trial.cross_errors(), trial.sample
    return risks + np.array([float(model.pv) for model in trial.learn(source, labels, target, trial.grid)])
