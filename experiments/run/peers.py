"""What a user would do instead: an SVM on the source as it is, on standardised domains, or after an adapter of skada.

A method is a function from ``(source, labels, target, seed)`` to a decision function. Adapters are as they come, and
the SVM behind each is tuned by cross-validation on the adapted source. Its widths follow the data, unlike those of
Table 1, which are for the plane and leave it near chance in 64 dimensions.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from experiments.run.methods import METHODS as TABLE1

__all__ = ["PEERS", "Decision", "Fit", "on_own_scales", "skada_svm", "svm", "table1"]

Decision = Callable[[np.ndarray], Any]
Fit = Callable[[np.ndarray, np.ndarray, np.ndarray, int], Decision]


def table1(name: str) -> Fit:
    """A method of Table 1, by its name."""
    return lambda source, labels, target, seed: TABLE1[name].fit(source, labels, target, seed).decision


def svm(source: np.ndarray, labels: np.ndarray, target: np.ndarray, seed: int) -> Decision:
    """A Gaussian SVM; cost and width by five folds of the source, of equal ones the least cost, then the widest."""
    from sklearn.model_selection import GridSearchCV, StratifiedKFold
    from sklearn.svm import SVC

    usual = 1 / (source.shape[1] * source.var())
    grid = {"C": [0.1, 1.0, 10.0, 100.0], "gamma": [0.1 * usual, usual, 10 * usual]}
    count = max(2, min(5, int(np.sum(labels > 0)), int(np.sum(labels < 0))))
    folds = StratifiedKFold(count, shuffle=True, random_state=seed)
    return GridSearchCV(SVC(), grid, cv=folds).fit(source, labels).decision_function


def _own_scale(x: np.ndarray, sample: np.ndarray) -> np.ndarray:
    deviation = sample.std(axis=0)
    # A pixel that is always black has no scale.
    return (x - sample.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)


def on_own_scales(fit: Fit) -> Fit:
    """A method on domains that are each scaled by their own mean and deviation."""

    def fit_scaled(source: np.ndarray, labels: np.ndarray, target: np.ndarray, seed: int) -> Decision:
        decide = fit(_own_scale(source, source), labels, _own_scale(target, target), seed)
        return lambda x: decide(_own_scale(x, target))

    return fit_scaled


def skada_svm(adapter: str) -> Fit:
    """An adapter of skada between the domains, and the same SVM on what it makes of the source."""

    def fit(source: np.ndarray, labels: np.ndarray, target: np.ndarray, seed: int) -> Decision:
        import skada

        made = getattr(skada, adapter)()
        # Numbers above 0 are sources, below 0 targets; a label of -1 is one that is not known.
        both, domain = np.concatenate([source, target]), np.repeat([1, -2], [len(source), len(target)])
        known = np.concatenate([(labels > 0).astype(int), np.full(len(target), -1)])
        moved = made.fit_transform(both, known, sample_domain=domain)
        decide = svm(moved[: len(source)], labels, moved[len(source) :], seed)
        return lambda x: decide(made.transform(x, sample_domain=np.full(len(x), -2)))

    return fit


PEERS: dict[str, Fit] = {
    "SVM": svm,
    "standardised + SVM": on_own_scales(svm),
    "CORAL + SVM": skada_svm("CORALAdapter"),
    "OT + SVM": skada_svm("EntropicOTMappingAdapter"),
    "class-regularised OT + SVM": skada_svm("ClassRegularizerOTMappingAdapter"),
    "subspace alignment + SVM": skada_svm("SubspaceAlignmentAdapter"),
}
