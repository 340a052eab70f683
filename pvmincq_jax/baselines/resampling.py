"""Validation of any fit function without target labels: cross-validation, reverse validation, and R_S + PV.

A fit function is ``fit(source, source_labels, target, params, seed) -> model`` with ``decision(model, x) -> [m]``.
Labels are -1 and +1; or numbers from 0 of more than two classes, and ``decision(model, x) -> [m, c]`` has a value for
each.
Folds are drawn from the points and the seed alone, so the scores do not depend on the order of the rows.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pvmincq_jax._samples import check_folds, fold_numbers, prepare
from pvmincq_jax._types import ArrayLike
from pvmincq_jax.adaptation.choice import least

__all__ = ["cross_validation", "reverse_validation", "rs_pv_validation"]

Fit = Callable[[np.ndarray, np.ndarray, np.ndarray, Any, int], Any]
Decision = Callable[[Any, np.ndarray], np.ndarray]
# (source, labels [g, m_s], target, grid, seed) -> one model per point of the grid
FitGrid = Callable[[np.ndarray, np.ndarray, np.ndarray, Sequence[Any], int], Sequence[Any]]
PVGrid = Callable[[np.ndarray, np.ndarray, np.ndarray, Sequence[Any], int], np.ndarray]


def _error(values: np.ndarray, labels: np.ndarray) -> float:
    """The share of wrong signs, or of wrong classes; 0 has no sign and is wrong, and so is what is not a number."""
    if values.ndim == 1:
        return float(np.mean(~(labels * values > 0)))
    return float(np.mean((np.argmax(values, axis=1) != labels) | np.any(np.isnan(values), axis=1)))


def _answers(values: np.ndarray) -> np.ndarray:
    """Labels ``[m]``: signs, +1 for 0, or numbers of the classes with the largest values."""
    return np.where(values >= 0, 1.0, -1.0) if values.ndim == 1 else np.argmax(values, axis=1)


def _class_sizes(labels: np.ndarray) -> list[int]:
    return np.unique(labels, return_counts=True)[1].tolist()


def _fit_all(
    fit: Fit,
    fit_grid: FitGrid | None,
    source: np.ndarray,
    labels: np.ndarray,
    target: np.ndarray,
    grid: Sequence[Any],
    seed: int,
) -> Sequence[Any]:
    if fit_grid is not None:
        return fit_grid(source, labels, target, grid, seed)
    return [fit(source, row, target, params, seed) for row, params in zip(labels, grid)]


def cross_validation(
    fit: Fit,
    decision: Decision,
    source: ArrayLike,
    source_labels: ArrayLike,
    target: ArrayLike,
    grid: Sequence[Any],
    folds: int = 5,
    seed: int = 0,
    *,
    fit_grid: FitGrid | None = None,
) -> np.ndarray:
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
    sample = prepare(source, source_labels, target)
    check_folds(folds, *_class_sizes(sample.labels))
    numbers = fold_numbers(sample.source, sample.labels, folds, seed)
    errors = np.zeros((folds, len(grid)))
    for fold in range(folds):
        rest, held = numbers != fold, numbers == fold
        labels = np.broadcast_to(sample.labels[rest], (len(grid), int(np.sum(rest))))
        models = _fit_all(fit, fit_grid, sample.source[rest], labels, sample.target, grid, seed)
        errors[fold] = [_error(decision(model, sample.source[held]), sample.labels[held]) for model in models]
    return np.mean(errors, axis=0)


def reverse_validation(
    fit: Fit,
    decision: Decision,
    source: ArrayLike,
    source_labels: ArrayLike,
    target: ArrayLike,
    grid: Sequence[Any],
    folds: int = 5,
    seed: int = 0,
    *,
    fit_grid: FitGrid | None = None,
) -> np.ndarray:
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
    sample = prepare(source, source_labels, target)
    check_folds(folds, *_class_sizes(sample.labels), sample.target.shape[0])
    source_numbers = fold_numbers(sample.source, sample.labels, folds, seed)
    target_numbers = fold_numbers(sample.target, None, folds, seed)
    errors = np.zeros((folds, len(grid)))
    for fold in range(folds):
        rest, held = source_numbers != fold, source_numbers == fold
        target_rest = sample.target[target_numbers != fold]
        labels = np.broadcast_to(sample.labels[rest], (len(grid), int(np.sum(rest))))
        forward = _fit_all(fit, fit_grid, sample.source[rest], labels, target_rest, grid, seed)
        values = [decision(model, target_rest) for model in forward]
        target_labels = np.array([_answers(row) for row in values])
        missing = np.array([np.any(np.isnan(row)) for row in values])
        constant = np.all(target_labels == target_labels[:, :1], axis=1)
        errors[fold] = np.mean(sample.labels[held] != target_labels[:, :1], axis=1)
        errors[fold, missing] = 1.0
        back = np.flatnonzero(~constant & ~missing)
        if back.size:
            points = [grid[int(index)] for index in back]
            reverse = _fit_all(fit, fit_grid, target_rest, target_labels[back], sample.source[rest], points, seed)
            errors[fold, back] = [
                _error(decision(model, sample.source[held]), sample.labels[held]) for model in reverse
            ]
    return np.mean(errors, axis=0)


def rs_pv_validation(
    fit: Fit,
    decision: Decision,
    source: ArrayLike,
    source_labels: ArrayLike,
    target: ArrayLike,
    grid: Sequence[Any],
    folds: int = 5,
    seed: int = 0,
    *,
    fit_grid: FitGrid | None = None,
    pv_grid: PVGrid | None = None,
) -> np.ndarray:
    """The paper's own criterion, R_S + PV (section 3.4): error on the source's left-out fold, plus perturbed variation.

    Args:
      fit: of a model whose ``.pv`` is the PV that it learnt at; this and decision, source, source_labels, target, grid,
        folds, seed and fit_grid as in `cross_validation`.
      pv_grid: the PVs of a whole grid, where a method knows them without a fit.

    Returns: scores ``[len(grid)]``, the lower the better; the PV in them is that of the whole samples.

    Example:
      >>> from pvmincq_jax.baselines import pv_svm
      >>> source, labels = np.arange(8.0)[:, None], np.repeat([-1, 1], 4)
      >>> rs_pv_validation(pv_svm.fit, pv_svm.decision, source, labels, source + 0.1, pv_svm.GRID[7:9], 2, 0).shape
      (2,)
    """
    risks = cross_validation(fit, decision, source, source_labels, target, grid, folds, seed, fit_grid=fit_grid)
    sample = prepare(source, source_labels, target)
    labels = np.broadcast_to(sample.labels, (len(grid), len(sample.labels)))
    if pv_grid is not None:
        return risks + pv_grid(sample.source, labels, sample.target, grid, seed)
    models = _fit_all(fit, fit_grid, sample.source, labels, sample.target, grid, seed)
    return risks + np.array([float(model.pv) for model in models])


def first_best(scores: ArrayLike) -> int:
    """The index of the least score; among equals, up to rounding, the first.

    Grids are listed from the smoothest model to the most flexible, so ties go to the smoothest. Scores ``[g]`` that are
    NaN or infinite are never chosen.

    Example:
      >>> first_best(np.array([0.3, 0.1 + 1e-16, 0.1]))
      1
    """
    return int(least(np.asarray(scores, dtype=float))[0, 0])
