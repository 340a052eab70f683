"""Choosing any estimator without target labels: R_S + PV and reverse validation as scikit-learn scorers.

They judge every classifier that scikit-learn or skada can fit, plain ones and those that adapt, by what section 3.4 of
the paper has at hand: labelled source points and unlabelled target points. ``sample_domain`` tells them apart (0 or
above: source, below 0: target) and reaches a scorer through metadata routing: ::

    sklearn.set_config(enable_metadata_routing=True)  # importing skada does it, too
    cross_validate(estimator, X, y, scoring=RsPvScorer(radius=0.5), params={"sample_domain": sample_domain})

Labels of target rows are never read: as for the estimators, they may be -1, NaN, None or any text. Scores are negative
errors, so that the higher is the better.
"""

import abc
import dataclasses
from typing import Any, Literal

import numpy as np

from pvmincq_jax._checks import check_count, check_one_of
from pvmincq_jax._extras import needs_extra
from pvmincq_jax._labels import names_of, read_domain, source_part
from pvmincq_jax._sklearn import fields_are_parameters, read_labels, seed_of, signs
from pvmincq_jax.baselines.resampling import reverse_validation
from pvmincq_jax.matching.matching import perturbed_variation
from pvmincq_jax.matching.space import Metric

with needs_extra("sklearn"):
    from sklearn import config_context
    from sklearn.base import BaseEstimator, clone
    from sklearn.pipeline import Pipeline
    from sklearn.utils.metadata_routing import get_routing_for_object

__all__ = ["ReverseValidationScorer", "RsPvScorer"]

# As skada numbers them.
_SOURCE, _TARGET = 1, -2


def _takes(estimator: Any, method: str, *names: str) -> set[str]:
    """Which of the names a method wants to be told."""
    return set(get_routing_for_object(estimator).consumes(method, set(names)))


def _call(estimator: Any, method: str, x: np.ndarray, domain: np.ndarray) -> np.ndarray:
    """``predict`` or ``transform`` of an estimator that may or may not know of domains."""
    known = {"sample_domain": domain, "allow_source": True}
    wanted = _takes(estimator, method, *known)
    with config_context(enable_metadata_routing=True):
        return np.asarray(getattr(estimator, method)(x, **{name: known[name] for name in wanted}))


class _DomainScorer(BaseEstimator):
    """A scorer that asks for the domains."""

    __metadata_request__score = {"sample_domain": True}  # noqa: RUF012

    def score(self, estimator: Any, X: Any, y: Any, sample_domain: Any = None) -> float:
        """The score of an estimator, which a call returns.

        Args:
          estimator: a classifier; see the class for whether it has to be fitted.
          X: points of both domains ``[m, d]``.
          y: labels ``[m]``; those of target rows are not read.
          sample_domain: 0 or above for source rows, below 0 for target rows ``[m]``.

        Returns: a number, the higher the better.
        """
        if sample_domain is None:
            raise ValueError(
                "sample_domain has not reached the scorer: pass it along (params={'sample_domain': ...} of "
                "cross_validate, or sample_domain=... of a search's fit), with "
                "sklearn.set_config(enable_metadata_routing=True)"
            )
        x = np.asarray(X)
        domain = read_domain(sample_domain, len(x))
        source, labels = source_part(y, domain, len(x))
        return -float(self._error(estimator, x, domain, source, read_labels(labels)))

    __call__ = score

    @abc.abstractmethod
    def _error(self, estimator: Any, x: np.ndarray, domain: np.ndarray, source: np.ndarray, labels: np.ndarray) -> Any:
        """Of all points and their domains; which are of the source, and the labels of these."""


@fields_are_parameters
class RsPvScorer(_DomainScorer):
    """-(R_S + PV), the paper's criterion (section 3.4), for any fitted classifier.

    R_S is the share of the given source points that the classifier gets wrong: give it points that it has not learnt
    from, as cross-validation does. PV is the perturbed variation of the given source and target points.

    PV in the space of the input is the same for all classifiers and changes no ranking of theirs. In the space
    "features", which the steps of a pipeline before the last lead to, it says how well an adapter has brought the
    domains together. There a radius means what the steps make of it: let a scaler come before the adapter, and
    compare pipelines whose features have one scale.

    Args:
      radius: of PV. None takes the PV that a `pvmincq_jax.estimators.PVMinCqClassifier` has learnt at, and PV is then
        part of what is chosen, as in the paper. It is 0 for one that has matched nobody, because its best vote was that
        of the source as it is or of the source on the target's scale: R_S is then its whole score.
      space: "input" or "features".
      metric: see `pvmincq_jax.match`.

    Example:
      >>> import numpy as np
      >>> from sklearn.neighbors import KNeighborsClassifier
      >>> from pvmincq_jax.scorers import RsPvScorer
      >>> X = np.array([[0.0], [1.0], [2.0], [3.0], [0.1], [1.1], [2.1], [9.0]])
      >>> y, domain = [0, 0, 1, 1, -1, -1, -1, -1], np.repeat([1, -2], 4)
      >>> model = KNeighborsClassifier(1).fit(X[:4], y[:4])
      >>> RsPvScorer(radius=0.5)(model, X, y, sample_domain=domain)  # no error, and one point in four unmatched
      -0.25
    """

    radius: float | None = dataclasses.field(default=None, kw_only=False)
    space: Literal["input", "features"] = "input"
    metric: Metric = "euclidean"

    def _error(self, estimator: Any, x: np.ndarray, domain: np.ndarray, source: np.ndarray, labels: np.ndarray) -> Any:
        risk = np.mean(_call(estimator, "predict", x[source], domain[source]) != labels)
        check_one_of("space", self.space, ("input", "features"))
        if self.radius is None:
            # Alone, or at the end of a pipeline, scikit-learn's or skada's.
            last = estimator[-1] if isinstance(estimator, Pipeline) else estimator
            model = getattr(last, "base_estimator_", last)
            if getattr(model, "pv_", None) is None:
                raise ValueError(
                    "radius must be given: only a fitted PVMinCqClassifier has a radius of its own, and this is a "
                    f"{type(estimator).__name__}"
                )
            # PV is the price of a matching, and at radius 0 nobody was matched.
            return risk + (model.pv_ if model.choice_.radius > 0 else 0.0)
        if self.space == "features":
            if not isinstance(estimator, Pipeline) or len(estimator) < 2:
                raise ValueError(
                    "space='features' needs a pipeline of at least two steps; this is a "
                    f"{type(estimator).__name__}. Take space='input'"
                )
            x = _call(estimator[:-1], "transform", x, domain)
        return risk + perturbed_variation(x[source], x[~source], self.radius, metric=self.metric)


@fields_are_parameters
class ReverseValidationScorer(_DomainScorer):
    """Minus the error of reverse validation, for any classifier, fitted or not (section 3.4).

    The scorer makes its own folds of the points it is given and fits clones of the estimator, towards the target and
    back again, see `pvmincq_jax.baselines.resampling.reverse_validation`: the labels it judges by are seen by none of
    the two models. So it is given the whole sample, and a search needs no split of its own: ::

        rows = np.arange(len(X))
        GridSearchCV(estimator, grid, scoring=ReverseValidationScorer(), cv=[(rows, rows)])

    An estimator that does not know of domains learns from the labelled points alone, both ways.

    Args:
      folds: of source and target.
      random_state: of the folds: a seed, a `numpy.random.RandomState`, or None.

    Example:
      >>> import numpy as np
      >>> from sklearn.neighbors import KNeighborsClassifier
      >>> from pvmincq_jax.scorers import ReverseValidationScorer
      >>> X = np.concatenate([np.linspace(0, 1, 20), np.linspace(0.1, 1.1, 20)])[:, None]
      >>> y, domain = np.concatenate([np.arange(20) // 10, np.full(20, -1)]), np.repeat([1, -2], 20)
      >>> ReverseValidationScorer(folds=2)(KNeighborsClassifier(1), X, y, sample_domain=domain) > -0.2
      True
    """

    folds: int = dataclasses.field(default=5, kw_only=False)
    random_state: Any = 0

    def _error(self, estimator: Any, x: np.ndarray, domain: np.ndarray, source: np.ndarray, labels: np.ndarray) -> Any:
        classes, labels = signs(labels)
        # skada tells masked labels by -1; where that is a class of its own, or labels are text, any label will do.
        masked = -1 if np.issubdtype(classes.dtype, np.number) and -1 not in classes else classes[0]

        def fit(labelled: np.ndarray, labels: np.ndarray, target: np.ndarray, params: Any, seed: int) -> Any:
            names, model = names_of(labels, classes), clone(estimator)
            with config_context(enable_metadata_routing=True):
                if not _takes(model, "fit", "sample_domain"):
                    return model.fit(labelled, names)
                domain = np.repeat([_SOURCE, _TARGET], [len(labelled), len(target)])
                every = np.concatenate([names, np.full(len(target), masked, dtype=names.dtype)])
                return model.fit(np.concatenate([labelled, target]), every, sample_domain=domain)

        def decision(model: Any, points: np.ndarray) -> np.ndarray:
            predicted = _call(model, "predict", points, np.full(len(points), _TARGET))
            is_class = predicted[:, None] == classes
            # A prediction that is none of the classes, such as NaN, is none here either.
            against_rest = np.where(np.any(is_class, axis=1, keepdims=True), np.where(is_class, 1.0, -1.0), np.nan)
            return against_rest[:, 1] if len(classes) == 2 else against_rest

        folds, seed = check_count("folds", self.folds, 2), seed_of(self.random_state)
        return reverse_validation(fit, decision, x[source], labels, x[~source], [None], folds, seed)[0]
