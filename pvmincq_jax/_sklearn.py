"""What the scikit-learn faces share: labels of any kind, domains, parameters as options of fits, and predictions."""

import abc
import dataclasses
import inspect
import numbers
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from pvmincq_jax import _checks, _labels
from pvmincq_jax._extras import needs_extra
from pvmincq_jax._types import MarginUnit, RadiusUnit
from pvmincq_jax.adaptation.criteria import Criterion
from pvmincq_jax.adaptation.model import ClassNames, decision
from pvmincq_jax.adaptation.options import check_options
from pvmincq_jax.adaptation.sweeps import UnlabelledClass
from pvmincq_jax.adaptation.validate import MOST_POINTS, ValidatedFit
from pvmincq_jax.matching.space import Metric
from pvmincq_jax.voting.centers import MOST_VOTERS
from pvmincq_jax.voting.families import VoterKind, family_grid

with needs_extra("sklearn"):
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.metrics import accuracy_score
    from sklearn.utils import check_random_state, column_or_1d, compute_sample_weight
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data

__all__: list[str] = []

# A parameter that is given, listed to choose from, or None to be chosen from a default list.
Given = float | Sequence[float] | None


class Domains(NamedTuple):
    """A checked task, everything in float64.

    Attributes:
      source: ``[m_s, d]``.
      labels: ``[m_s]`` in {-1, +1}; of more than two classes their numbers, from 0 on.
      target: ``[m_t, d]``; the source itself if there is one domain only.
      weights: of the source ``[m_s]``, above 0.
      single: whether there is one domain only.
    """

    source: np.ndarray
    labels: np.ndarray
    target: np.ndarray
    weights: np.ndarray
    single: bool


def read_labels(y: Any) -> np.ndarray:
    """Labels ``[m]``; numbers that were stored beside None or NaN become numbers again, and text becomes text."""
    y = column_or_1d(y, warn=True)
    return np.array(y.tolist()) if y.dtype == object else y


def signs(y: Any) -> tuple[np.ndarray, np.ndarray]:
    """The classes in order ``[c]``, and labels ``[m]``: -1 and +1 of two classes, numbers from 0 on of more."""
    y = read_labels(y)
    check_classification_targets(y)
    classes, numbers = np.unique(y, return_inverse=True)
    if classes.size == 1:
        raise ValueError(
            f"y holds one class only, {classes[0]}: a vote needs points of two classes to learn from. Check how the "
            "sample was drawn or split; a stratified split keeps all classes"
        )
    return classes, 2.0 * numbers - 1 if classes.size == 2 else numbers.astype(float)


def seed_of(random_state: Any) -> int:
    """A seed from what scikit-learn calls a random state: an integer is the seed itself."""
    if isinstance(random_state, numbers.Integral):
        return _checks.check_seed("random_state", random_state)
    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except (TypeError, ValueError) as error:
        raise ValueError(f"random_state must be a seed, a numpy.random.RandomState or None: {error}") from error


def number(value: Any) -> Any:
    """A float, an array with one for each class, or None."""
    return None if value is None else float(value) if np.ndim(value) == 0 else np.asarray(value)


# The constructor keeps parameters as they are; `fit` checks them.
fields_are_parameters = dataclasses.dataclass(kw_only=True, eq=False, repr=False)


@fields_are_parameters
class VoteClassifier(ClassifierMixin, BaseEstimator):
    """Prediction by a fitted vote of two classes, or by one for each class, ``model_``."""

    # Metadata routing: pipelines and searches hand weights and domains on without being asked.
    __metadata_request__fit = {"sample_weight": True}  # noqa: RUF012
    __metadata_request__predict = {"sample_domain": True}  # noqa: RUF012
    __metadata_request__predict_proba = {"sample_domain": True}  # noqa: RUF012
    __metadata_request__decision_function = {"sample_domain": True}  # noqa: RUF012
    __metadata_request__score = {"sample_domain": True}  # noqa: RUF012

    voters: VoterKind = "rbf"
    gamma: Given = None
    margin: Given = None
    margin_unit: MarginUnit = "fraction"
    most_voters: int = MOST_VOTERS
    class_weight: dict[Any, float] | Literal["balanced"] | None = None
    random_state: Any = 0
    keep_sweep: bool = True

    def _read(self, X: np.ndarray, y: Any, sample_weight: Any, target: np.ndarray | None = None) -> Domains:
        """A task of the rows that have a weight, of one domain if there is no target; learns the classes' names."""
        given = np.ones(len(X)) if sample_weight is None else sample_weight
        (weights,) = _checks.read_samples(sample_weight=given)
        _checks.check_sample_weights("sample_weight", weights, len(X))
        kept = weights > 0
        self.classes_, labels = signs(_labels.taken(y, kept))
        source, weights = X[kept], weights[kept].astype(float)
        # A vote of each class against the rest is balanced in any case.
        if len(self.classes_) == 2 or self.class_weight != "balanced":
            weights = weights * compute_sample_weight(self.class_weight, _labels.names_of(labels, self.classes_))
        return Domains(source, labels, source if target is None else target, weights, target is None)

    def _call(self, fit: Callable[..., ValidatedFit], task: Domains, criterion: Criterion) -> ValidatedFit:
        """A fit of a task by those of the parameters that it takes, under its names; errors are by the parameters'."""
        _checks.check_flag("keep_sweep", self.keep_sweep)
        given = self.get_params(deep=False)
        check_options(**{name: given[name] for name in ("radius_unit", "margin_unit", "most_voters") if name in given})
        options = given | {"criterion": criterion, "seed": seed_of(self.random_state)}
        options |= {"source_weights": task.weights, "sample_weights": task.weights}
        for name, option in (("margin", "margins"), ("gamma", "gammas"), ("radius", "radii")):
            if options.get(name) is not None:
                options[option] = _checks.check_list(name, np.atleast_1d(_checks.check_real(name, options[name])))
        if "margins" in options:
            _checks.check_margins(options["margins"], self.margin_unit, "margin")
        family_grid(self.voters, options.get("gammas"), task.target, "gamma")
        if "radii" in options and not task.single:
            check = _checks.check_not_negative if options["radius_unit"] == "pv" else _checks.check_positive
            check("radius", options["radii"])
        sizes = np.unique(task.labels, return_counts=True)[1].tolist()
        if options.get("folds") is not None and min(sizes) > 1:
            options["folds"] = min(_checks.check_count("folds", options["folds"], 2), *sizes)
        known = inspect.signature(fit).parameters
        return fit(*task[: 2 if task.single else 3], **{name: options[name] for name in options if name in known})

    def _name(self, fit: ValidatedFit, single: bool) -> None:
        """Names the results that all classifiers have."""
        model = fit.model._replace(classes=ClassNames(self.classes_.tolist()))
        self.model_, self.choice_, self.sweep_ = model, fit.choice, fit.sweep if self.keep_sweep else None
        self.weights_, self.centers_ = np.asarray(model.weights), model.centers
        # A committee has no gamma of its own, and voters may have none.
        self.gamma_ = None if model.kkt_residual is None or np.isnan(fit.choice.gamma) else fit.choice.gamma
        self.margin_, self.mu_max_ = number(model.margin), number(model.mu_max)
        self.margin_fraction_ = None if self.mu_max_ is None else self.margin_ / self.mu_max_
        self.c_bound_, self.kkt_residual_ = number(model.c_bound), number(model.kkt_residual)
        # Of large samples, that of the part that was matched.
        votes, sample = self._known_votes(fit, single), fit.sweep.self_labels[fit.choice.grid_index[0]]
        self.probability_scale_ = _labels.probability_scale(votes, sample.labels, sample.weights)

    @staticmethod
    def _known_votes(fit: ValidatedFit, single: bool) -> np.ndarray:
        """At the points learnt from ``[m]`` or ``[m, c]``; with one domain and folds, learnt without a point's fold."""
        r, g, k = fit.choice.grid_index
        values = np.array(np.nan) if fit.sweep.source_values is None else fit.sweep.source_values[..., r, g, k, :]
        if not single or np.any(np.isnan(values)):
            return decision(fit.model, fit.sweep.learning_points(r))
        # By how much a class is behind the best one, in units of a margin: but for a constant, its vote.
        return values if values.ndim == 1 else np.minimum(values, 0.0).T * np.min(fit.model.margin)

    def decision_function(self, X: Any, sample_domain: Any = None) -> np.ndarray:
        """The expected vote, sum_j w_j h_j(x), in [-1, 1].

        Above 0 it is for ``classes_[1]``; its size is the Q-margin of the paper. It is small where few voters reach a
        point, and when the margin mu that was asked for is small. The value of a row depends on that row alone. With
        more than two classes there is a vote for each class against the rest, in [-1, 1] as well; all of one first
        moment, but for a committee, whose members are.

        Args:
          X: points ``[m, d]``.
          sample_domain: of the rows ``[m]``, or one number for all; None for the target. Below 0 is the target, which
            the vote was learnt for; rows of the source, 0 or above, are judged by the same vote.

        Returns: ``[m]``, or ``[m, c]`` with columns in the order of ``classes_``.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        _labels.read_domain(0 if sample_domain is None else sample_domain, len(X))
        return decision(self.model_, X)

    def predict(self, X: Any, sample_domain: Any = None) -> np.ndarray:
        """The majority vote, or the class of the largest vote.

        ``classes_[0]`` where the votes balance, as they do out of reach of all kernels.

        Args:
          X, sample_domain: as in `decision_function`.

        Returns: labels ``[m]``, from ``classes_``.
        """
        predicted = _labels.predicted_numbers(self.decision_function(X, sample_domain))
        return self.classes_[predicted]

    def score(self, X: Any, y: Any, sample_weight: Any = None, sample_domain: Any = None) -> float:
        """The share of rows whose class is predicted; the labels of all rows are read, whatever their domain.

        Args:
          X, sample_domain: as in `decision_function`.
          y: labels ``[m]``.
          sample_weight: of the rows ``[m]``, or None.

        Returns: the accuracy.
        """
        return accuracy_score(y, self.predict(X, sample_domain), sample_weight=sample_weight)

    def predict_proba(self, X: Any, sample_domain: Any = None) -> np.ndarray:
        """Probabilities of the classes: p = 1 / (1 + exp(-a f(x))), or softmax(a f(x)) of the votes of c > 2 classes.

        The scale a, ``probability_scale_``, has the least log loss on the points that the vote learnt from: target
        points with the labels that they were given, or moved source points with their own; with one domain and
        something to choose, by votes that were learnt without their fold. No target label is read, so that it is right
        as far as these labels are. The most probable class is the one predicted; no probability is 0 or 1. See
        `predict_gibbs` for the reading of the PAC-Bayes theory.

        Args:
          X, sample_domain: as in `decision_function`.

        Returns: ``[m, c]``, columns in the order of ``classes_``.
        """
        return _labels.probabilities(self.decision_function(X, sample_domain), self.probability_scale_)

    def predict_gibbs(self, X: Any, sample_domain: Any = None) -> np.ndarray:
        """What the Gibbs classifier would answer, not how sure one may be.

        (1 + sum_j w_j h_j(x)) / 2 is the probability that a voter drawn from the posterior Q, which then answers +1
        with probability (1 + h(x)) / 2, says ``classes_[1]``. It is on the right side of 1/2 but not calibrated, and
        all the closer to 1/2 the smaller the margin mu. With more than two classes, the probabilities of the classes
        against the rest are divided by their sum.

        Args:
          X, sample_domain: as in `decision_function`.

        Returns: ``[m, c]``, columns in the order of ``classes_``.
        """
        return _labels.gibbs_probabilities(self.decision_function(X, sample_domain))


@fields_are_parameters
class AdaptedClassifier(VoteClassifier):
    """A classifier that learns from a labelled source domain and a target domain without labels."""

    __metadata_request__fit = {"sample_domain": True, "sample_weight": True}  # noqa: RUF012

    radius: Given = None
    radius_unit: RadiusUnit = "absolute"
    draws: int | None = None
    most_points: int | None = MOST_POINTS
    metric: Metric = "euclidean"

    def __new__(cls, *arguments: Any, **parameters: Any) -> Any:
        """Says where to go if it is told a form, as in version 0.2."""
        if "form" in parameters:
            raise ValueError(
                f"form is no parameter of {cls.__name__}; it is {parameters['form']!r}. Take PVMinCqClassifier for the "
                "paper's form ('label'), and PVTransportClassifier for the one that moves source points ('transport')"
            )
        return super().__new__(cls)

    def fit(self, X: Any, y: Any, sample_domain: Any = None, sample_weight: Any = None) -> Any:
        """Learns the vote.

        Args:
          X: points of both domains ``[m, d]``, dense.
          y: labels ``[m]``; those of target rows are not read.
          sample_domain: 0 or above for source rows, below 0 for target rows ``[m]``; None if there is one domain.
          sample_weight: ``[m]``; those of target rows are not read. In R_S a point of a fold counts by its weight; in
            MinCq a label carries its weight along, or a moved point is as heavy as it is matched, times its weight; the
            matching pairs points whatever they weigh. A row of weight 0 is left out of everything.

        Returns: the classifier itself.
        """
        if sample_domain is None:
            X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
            task, classes = self._read(X, y, sample_weight), self.classes_
            if len(classes) > 2 and np.issubdtype(classes.dtype, np.number) and classes[0] == -1 and classes[1] >= 0:
                # As skada masks labels of target rows.
                warnings.warn(
                    f"y holds -1 beside {len(classes) - 1} other classes, and there is no sample_domain: all rows are "
                    "one domain then, -1 is a class, and nothing is adapted. If -1 masks the labels of target rows, "
                    "pass sample_domain, 0 or above for source rows and below 0 for target rows",
                    UserWarning,
                    stacklevel=2,
                )
            return self._learn(task)
        X = validate_data(self, X, dtype=np.float64)
        source, labels = _labels.source_part(y, sample_domain, len(X))
        if sample_weight is not None:
            _checks.check_length("sample_weight", sample_weight, len(X), "row of X")
            sample_weight = _labels.taken(sample_weight, source)
        return self._learn(self._read(X[source], labels, sample_weight, X[~source]))

    def fit_domains(self, Xs: Any, ys: Any, Xt: Any, sample_weight: Any = None) -> Any:
        """Learns the vote from two samples.

        Args:
          Xs: source points ``[m_s, d]``, dense.
          ys: their labels ``[m_s]``.
          Xt: target points ``[m_t, d]``.
          sample_weight: of the source points ``[m_s]``, as in `fit`.

        Returns: the classifier itself.
        """
        Xs, ys = validate_data(self, Xs, ys, dtype=np.float64)
        Xt = validate_data(self, Xt, dtype=np.float64, reset=False)
        return self._learn(self._read(Xs, ys, sample_weight, Xt))

    def fit_target(self, Xt: Any) -> Any:
        """Learns the vote anew for another target, from the source that it was fitted with.

        Args:
          Xt: target points ``[m_t, d]``.

        Returns: the classifier itself.
        """
        check_is_fitted(self)
        Xt = validate_data(self, Xt, dtype=np.float64, reset=False)
        return self._learn(Domains(self.source_, self.source_labels_, Xt, self.source_weights_, False))

    @abc.abstractmethod
    def _fit(self, task: Domains) -> ValidatedFit:
        """What a subclass learns from a checked task."""

    def _learn(self, task: Domains) -> Any:
        """Learns, and names the results."""
        try:
            fit = self._fit(task)
        except UnlabelledClass as error:
            raise UnlabelledClass(error.numbers, self.classes_.tolist()) from error
        self._name(fit, task.single)
        self.adapted_, self.shift_, self.criterion_ = fit.adapted, fit.shift, fit.choice.scores
        self.source_, self.source_labels_, self.target_, self.source_weights_ = task[:4]
        self.radius_, self.pv_, self.pairs_ = number(fit.model.radius), float(fit.model.pv), fit.model.pairs
        self.self_labels_, self.self_label_weights_ = np.asarray(fit.model.labels), np.asarray(fit.model.label_weights)
        return self
