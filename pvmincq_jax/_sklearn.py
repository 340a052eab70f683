"""What the scikit-learn faces share: labels of any kind, domains, grids of parameters, votes at new points."""

import abc
import functools
import numbers
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from pvmincq_jax._checks import check_count, check_length, check_margins, check_numbers, check_sample_weights
from pvmincq_jax._probabilities import gibbs_probabilities, predicted_numbers, probabilities, probability_scale
from pvmincq_jax._types import MarginUnit, RadiusUnit
from pvmincq_jax.adaptation.criteria import Criterion, label_criterion, rs, rs_pv, rs_pv_cbound, rs_pv_risk
from pvmincq_jax.adaptation.model import ClassNames, decision
from pvmincq_jax.adaptation.sweeps import UnlabelledClass
from pvmincq_jax.adaptation.validate import ValidatedFit, fit_mincq_validated
from pvmincq_jax.matching.space import Metric
from pvmincq_jax.voting.families import VoterKind, family_grid

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.metrics import accuracy_score
    from sklearn.utils import check_random_state, column_or_1d, compute_sample_weight
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError("this part of pvmincq_jax needs scikit-learn: pip install 'pvmincq-jax[sklearn]'") from error

__all__: list[str] = []

CRITERIA: dict[str, Criterion] = {one.__name__: one for one in (rs, rs_pv, rs_pv_cbound, label_criterion, rs_pv_risk)}

# A parameter that is given, listed to choose from, or None to be chosen from a default list.
Given = float | Sequence[float] | None
ClassWeight = dict[Any, float] | Literal["balanced"] | None


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


def signs(y: Any) -> tuple[np.ndarray, np.ndarray]:
    """The classes in order ``[c]``, and labels ``[m]``: -1 and +1 of two classes, numbers from 0 on of more."""
    y = column_or_1d(y, warn=True)
    if y.dtype == object:
        # Numbers that were stored beside None or NaN become numbers again; text becomes text.
        y = np.array(y.tolist())
    check_classification_targets(y)
    classes, numbers = np.unique(y, return_inverse=True)
    if classes.size == 1:
        raise ValueError(
            f"y holds one class only, {classes[0]}: a vote needs points of two classes to learn from. Check how the "
            "sample was drawn or split; a stratified split keeps all classes"
        )
    return classes, 2.0 * numbers - 1 if classes.size == 2 else numbers.astype(float)


def taken(y: Any, rows: np.ndarray) -> Any:
    """Labels of some rows, bool ``[m]``; taken before they are one array, which text or NaN in others would change."""
    return [label for label, kept in zip(y, rows) if kept] if isinstance(y, list | tuple) else np.asarray(y)[rows]


def read_domain(sample_domain: Any, count: int) -> np.ndarray:
    """The domain of each row ``[m]``, from one for each or one for all."""
    domain = np.asarray(sample_domain)
    if domain.ndim and domain.shape != (count,):
        raise ValueError(f"sample_domain must have one entry per row of X ({count}); its shape is {domain.shape}")
    if not np.issubdtype(domain.dtype, np.number) or np.any(np.isnan(domain)):
        raise ValueError("sample_domain must hold numbers: 0 or above for source rows, below 0 for target rows")
    return np.broadcast_to(domain, (count,))


def source_rows(sample_domain: Any, count: int) -> np.ndarray:
    """Which rows are of the source: those with a domain of 0 or more ``[m]``, bool."""
    source = read_domain(sample_domain, count) >= 0
    for rows, name, rule in ((source, "source", "0 or above"), (~source, "target", "below 0")):
        if not np.any(rows):
            raise ValueError(
                f"sample_domain names no {name} row ({rule}): adaptation needs both domains. For one domain, leave "
                "sample_domain out"
            )
    return source


def seed_of(random_state: Any) -> int:
    """A seed from what scikit-learn calls a random state: an integer is the seed itself."""
    if isinstance(random_state, numbers.Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def listed(name: str, given: Given) -> np.ndarray:
    """The numbers of a parameter to choose from, one or several."""
    values = np.atleast_1d(np.asarray(check_numbers(name, given), dtype=float))
    if values.ndim != 1 or not values.size or not np.all(np.isfinite(values)) or np.any(values < 0):
        raise ValueError(f"{name} must be a number above 0, a list of them, or None to be chosen; it is {given!r}")
    return values


def fold_count(folds: int | None, labels: np.ndarray) -> int | None:
    """The folds given, or as many as the smallest class has points; None to leave it to the fit."""
    smallest = int(np.min(np.unique(labels, return_counts=True)[1]))
    return None if folds is None or smallest < 2 else min(check_count("folds", folds, 2), smallest)


def named_criterion(criterion: str | Criterion) -> Criterion:
    """A criterion by its name, or a function as it is."""
    if isinstance(criterion, str) and criterion not in CRITERIA:
        raise ValueError(f"criterion must be one of {', '.join(CRITERIA)}, or a function; it is {criterion!r}")
    return CRITERIA[criterion] if isinstance(criterion, str) else criterion


def number(value: Any) -> Any:
    """A float, an array with one for each class, or None."""
    if value is None:
        return None
    return float(value) if np.ndim(value) == 0 else np.asarray(value)


class VoteClassifier(ClassifierMixin, BaseEstimator):
    """Prediction by a fitted vote of two classes, or by one for each class, ``model_``."""

    # Metadata routing: pipelines and searches hand weights and domains on without being asked.
    __metadata_request__fit = {"sample_weight": True}  # noqa: RUF012
    __metadata_request__predict = {"sample_domain": True}  # noqa: RUF012
    __metadata_request__predict_proba = {"sample_domain": True}  # noqa: RUF012
    __metadata_request__decision_function = {"sample_domain": True}  # noqa: RUF012
    __metadata_request__score = {"sample_domain": True}  # noqa: RUF012

    voters: VoterKind
    gamma: Given
    margin: Given
    margin_unit: MarginUnit
    most_voters: int
    class_weight: ClassWeight
    random_state: Any
    keep_sweep: bool

    def _grid(self, points: np.ndarray) -> dict[str, Any]:
        """The options that all fits have, under their names; errors are by the parameters' own."""
        grid: dict[str, Any] = {"voters": self.voters, "most_voters": self.most_voters, "margin_unit": self.margin_unit}
        if self.margin is not None:
            grid["margins"] = check_margins(listed("margin", self.margin), self.margin_unit, "margin")
        if self.gamma is not None:
            grid["gammas"] = np.atleast_1d(check_numbers("gamma", self.gamma))
        family_grid(self.voters, grid.get("gammas"), points, "gamma")
        return grid | {"seed": seed_of(self.random_state)}

    def _fit_one_domain(self, task: Domains, criterion: str | Criterion, folds: int | None) -> ValidatedFit:
        """On one domain every point is its own match."""
        options = self._grid(task.source) | {"folds": fold_count(folds, task.labels)}
        options |= {"sample_weights": task.weights, "criterion": named_criterion(criterion)}
        return fit_mincq_validated(task.source, task.labels, **options)

    def _learnt(self, fit: ValidatedFit, single: bool) -> None:
        """Names the results that all classifiers have."""
        model = fit.model._replace(classes=ClassNames(self.classes_.tolist()))
        self.model_, self.choice_, self.sweep_ = model, fit.choice, fit.sweep if self.keep_sweep else None
        self.weights_ = np.asarray(model.weights)
        self.centers_ = model.centers
        # A committee has no gamma of its own, and voters may have none.
        self.gamma_ = None if model.kkt_residual is None or np.isnan(fit.choice.gamma) else fit.choice.gamma
        self.margin_, self.mu_max_ = number(model.margin), number(model.mu_max)
        self.margin_fraction_ = None if self.mu_max_ is None else self.margin_ / self.mu_max_
        self.c_bound_, self.kkt_residual_ = number(model.c_bound), number(model.kkt_residual)
        # Of large samples, that of the part that was matched.
        sample = fit.sweep.self_labels[fit.choice.grid_index[0]]
        self.probability_scale_ = probability_scale(self._known_votes(fit, single), sample.labels, sample.weights)

    @staticmethod
    def _known_votes(fit: ValidatedFit, single: bool) -> np.ndarray:
        """At the points learnt from ``[m]`` or ``[m, c]``; with one domain and folds, learnt without a point's fold."""
        r, g, k = fit.choice.grid_index
        values = np.array(np.nan) if fit.sweep.source_values is None else fit.sweep.source_values[..., r, g, k, :]
        if not single or np.any(np.isnan(values)):
            return decision(fit.model, fit.sweep.learning_points(r))
        # By how much a class is behind the best one, in units of a margin: but for a constant, its vote.
        return values if values.ndim == 1 else np.minimum(values, 0.0).T * np.min(fit.model.margin)

    def _one_domain(self, X: Any, y: Any, sample_weight: Any) -> Domains:
        """Checks a sample of one domain, and learns the names of features and classes."""
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        X, labels, weights = self._weighed(X, y, sample_weight)
        return Domains(X, labels, X, weights, True)

    def _weighed(self, X: np.ndarray, y: Any, sample_weight: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Points, labels and weights of the rows that have a weight; learns the names of the classes."""
        weights = np.ones(len(X)) if sample_weight is None else check_numbers("sample_weight", sample_weight)
        check_sample_weights("sample_weight", weights, len(X))
        kept = weights > 0
        self.classes_, labels = signs(taken(y, kept))
        weights = weights[kept].astype(float)
        # A vote of each class against the rest is balanced in any case.
        if len(self.classes_) == 2 or self.class_weight != "balanced":
            numbers = labels > 0 if len(self.classes_) == 2 else labels
            weights = weights * compute_sample_weight(self.class_weight, self.classes_[numbers.astype(int)])
        return X[kept], labels, weights

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
        read_domain(0 if sample_domain is None else sample_domain, len(X))
        return decision(self.model_, X)

    def predict(self, X: Any, sample_domain: Any = None) -> np.ndarray:
        """The majority vote, or the class of the largest vote.

        ``classes_[0]`` where the votes balance, as they do out of reach of all kernels.

        Args:
          X, sample_domain: as in `decision_function`.

        Returns: labels ``[m]``, from ``classes_``.
        """
        numbers = predicted_numbers(self.decision_function(X, sample_domain))
        return self.classes_[numbers]

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
        return probabilities(self.decision_function(X, sample_domain), self.probability_scale_)

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
        return gibbs_probabilities(self.decision_function(X, sample_domain))


def one_form(init: Callable[..., None]) -> Callable[..., None]:
    """A constructor that says where to go if it is told a form, as in version 0.2; its signature is the same."""

    @functools.wraps(init)
    def checked(self: Any, *arguments: Any, **parameters: Any) -> None:
        if "form" in parameters:
            raise ValueError(
                f"form is no parameter of {type(self).__name__}; it is {parameters['form']!r}. Take PVMinCqClassifier "
                "for the paper's form ('label'), and PVTransportClassifier for the one that moves source points "
                "('transport')"
            )
        init(self, *arguments, **parameters)

    return checked


class AdaptedClassifier(VoteClassifier):
    """A classifier that learns from a labelled source domain and a target domain without labels."""

    radius: Given
    radius_unit: RadiusUnit
    draws: int | None
    most_points: int | None
    metric: Metric

    __metadata_request__fit = {"sample_domain": True, "sample_weight": True}  # noqa: RUF012

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
            task = self._one_domain(X, y, sample_weight)
            self._warn_of_masks()
            return self._named(task)
        X = validate_data(self, X, dtype=np.float64)
        source = source_rows(sample_domain, len(X))
        if y is None or np.shape(y)[:1] != (len(X),):
            raise ValueError(
                f"y must have one entry per row of X ({len(X)}), whatever it is for target rows; its shape is "
                f"{np.shape(y)}"
            )
        if sample_weight is not None:
            check_length("sample_weight", sample_weight, len(X), "row of X")
            sample_weight = taken(sample_weight, source)
        points, labels, weights = self._weighed(X[source], taken(y, source), sample_weight)
        return self._named(Domains(points, labels, X[~source], weights, False))

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
        points, labels, weights = self._weighed(Xs, ys, sample_weight)
        return self._named(Domains(points, labels, Xt, weights, False))

    def fit_target(self, Xt: Any) -> Any:
        """Learns the vote anew for another target, from the source that it was fitted with.

        Args:
          Xt: target points ``[m_t, d]``.

        Returns: the classifier itself.
        """
        check_is_fitted(self)
        Xt = validate_data(self, Xt, dtype=np.float64, reset=False)
        return self._named(Domains(self.source_, self.source_labels_, Xt, self.source_weights_, False))

    @abc.abstractmethod
    def _fit(self, task: Domains) -> ValidatedFit:
        """What a subclass learns from a checked task."""

    def _warn_of_masks(self) -> None:
        """Warns of labels that look as skada masks those of target rows, where nobody said which rows these are."""
        classes = self.classes_
        if len(classes) > 2 and np.issubdtype(classes.dtype, np.number) and classes[0] == -1 and classes[1] >= 0:
            warnings.warn(
                f"y holds -1 beside {len(classes) - 1} other classes, and there is no sample_domain: all rows are one "
                "domain then, -1 is a class, and nothing is adapted. If -1 masks the labels of target rows, pass "
                "sample_domain, 0 or above for source rows and below 0 for target rows",
                UserWarning,
                stacklevel=3,
            )

    def _named(self, task: Domains) -> Any:
        """Learns, and names the results."""
        try:
            fit = self._fit(task)
        except UnlabelledClass as error:
            raise UnlabelledClass(error.numbers, self.classes_.tolist()) from error
        model = fit.model
        self._learnt(fit, task.single)
        self.adapted_, self.shift_ = fit.adapted and not task.single, fit.shift
        self.criterion_ = fit.choice.scores
        self.source_, self.source_labels_, self.target_ = task.source, task.labels, task.target
        self.source_weights_ = task.weights
        self.radius_, self.pv_, self.pairs_ = number(model.radius), float(model.pv), model.pairs
        self.self_labels_, self.self_label_weights_ = np.asarray(model.labels), np.asarray(model.label_weights)
        return self

    def _domain_grid(self, task: Domains) -> dict[str, Any]:
        """`_grid`, and the options of the matching."""
        grid = self._grid(task.target) | {"metric": self.metric, "radius_unit": self.radius_unit, "draws": self.draws}
        grid["most_points"] = self.most_points
        grid["source_weights"] = task.weights
        if self.radius is not None:
            radii = listed("radius", self.radius)
            if self.radius_unit != "pv" and np.any(radii == 0):
                raise ValueError(f"radius must be above 0; it is {self.radius!r}")
            grid["radii"] = radii
        return grid
