"""What the scikit-learn faces share: labels of any kind, domains, grids of parameters, votes at new points."""

import numbers
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from pvmincq_jax._checks import check_count, check_margins, check_numbers
from pvmincq_jax._types import MarginUnit, Status
from pvmincq_jax.adaptation.choice import Choice, choose
from pvmincq_jax.adaptation.class_grids import by_class, check_matched, class_model, class_scores
from pvmincq_jax.adaptation.classes import class_numbers, one_against_rest
from pvmincq_jax.adaptation.criteria import Criterion, label_criterion, rs, rs_pv, rs_pv_cbound, rs_pv_risk
from pvmincq_jax.adaptation.labelled import Sweep
from pvmincq_jax.adaptation.model import ClassNames, PVMinCq, decision
from pvmincq_jax.adaptation.options import GridOptions
from pvmincq_jax.adaptation.own import own_grid
from pvmincq_jax.adaptation.sweeps import MARGIN_FRACTIONS
from pvmincq_jax.voting.families import FamilyGrid, VoterKind, family_grid

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import check_random_state, column_or_1d
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError("this part of pvmincq_jax needs scikit-learn: pip install 'pvmincq-jax[sklearn]'") from error

__all__: list[str] = []

CRITERIA: dict[str, Criterion] = {one.__name__: one for one in (rs, rs_pv, rs_pv_cbound, label_criterion, rs_pv_risk)}

# Each fold of more than two classes is a vote for every class: five classes and two folds cost as much as two classes
# and fourteen.
FOLDS, FOLDS_OF_MORE = 5, 2
# Draws times points, up to which no draw is spared by default.
_DRAWN = 48_000

# A parameter that is given, listed to choose from, or None to be chosen from a default list.
Given = float | Sequence[float] | None


class Domains(NamedTuple):
    """A checked task: labels in {-1, +1}, everything in float64.

    Attributes:
      source: ``[m_s, d]``.
      labels: ``[m_s]``; of more than two classes, those of each against the rest ``[c, m_s]``.
      target: ``[m_t, d]``; the source itself if there is one domain only.
      single: whether there is one domain only.
    """

    source: np.ndarray
    labels: np.ndarray
    target: np.ndarray
    single: bool


def signs(y: Any) -> tuple[np.ndarray, np.ndarray]:
    """The classes in order ``[c]``, and labels in {-1, +1}.

    With two classes, -1 for the first and +1 for the second ``[m]``; with more, +1 in the row of its class ``[c, m]``.
    """
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
    labels = one_against_rest(numbers, classes.size)
    return classes, labels[1] if classes.size == 2 else labels


def source_rows(sample_domain: Any, count: int) -> np.ndarray:
    """Which rows are of the source: those with a domain of 0 or more ``[m]``, bool."""
    domain = np.asarray(sample_domain)
    if domain.shape != (count,):
        raise ValueError(f"sample_domain must have one entry per row of X ({count}); its shape is {domain.shape}")
    if not np.issubdtype(domain.dtype, np.number) or np.any(np.isnan(domain)):
        raise ValueError("sample_domain must hold numbers: 0 or above for source rows, below 0 for target rows")
    source = domain >= 0
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


def listed(name: str, given: Given, default: Callable[[], Sequence[float] | np.ndarray]) -> np.ndarray:
    """The grid of one parameter: the number given, the numbers given, or the default."""
    values = np.atleast_1d(np.asarray(default() if given is None else check_numbers(name, given), dtype=float))
    if values.ndim != 1 or not values.size or not np.all(np.isfinite(values)) or np.any(values < 0):
        raise ValueError(f"{name} must be a number above 0, a list of them, or None to be chosen; it is {given!r}")
    return values


def margin_list(margin: Given, unit: MarginUnit, default: Sequence[float] = MARGIN_FRACTIONS) -> np.ndarray:
    """The margins to choose from; fractions of mu_max unless absolute ones are given."""
    return check_margins(listed("margin", margin, lambda: default), unit, "margin")


def voter_grid(voters: VoterKind, gamma: Given, points: np.ndarray) -> FamilyGrid:
    """The families to choose from, of one gamma, of those listed, or of those that suit the points by default."""
    return family_grid(voters, None if gamma is None else np.atleast_1d(check_numbers("gamma", gamma)), points, "gamma")


def fold_count(folds: int | None, labels: np.ndarray, grid: int) -> int:
    """How many folds: none with one point of the grid; no more than the smallest class has points, but two at least.

    A fold may then have to do without one class.
    """
    default = FOLDS if labels.ndim == 1 else FOLDS_OF_MORE
    count = check_count("folds", default if folds is None else folds, 2)
    smallest = int(np.min(np.unique(class_numbers(labels), return_counts=True)[1]))
    return max(2, min(count, smallest)) if grid > 1 else 0


def draw_count(draws: int | None, usual: int, points: int) -> int:
    """How many matchings: those given, or the usual number; fewer for many points, which average by themselves.

    Example:
      >>> [draw_count(None, 16, points) for points in (300, 3000, 6000, 100_000)], draw_count(5, 16, 100_000)
      ([16, 16, 8, 4], 5)
    """
    return check_count("draws", max(usual // 4, min(usual, _DRAWN // points)) if draws is None else draws, 1)


def chosen(sweeps: Sequence[Sweep], criterion: str | Criterion) -> Choice:
    """The best point of the grid, for all classes; with one point there is nothing to choose, and its score is NaN."""
    sweep = sweeps[0]
    if isinstance(criterion, str) and criterion not in CRITERIA:
        raise ValueError(f"criterion must be one of {', '.join(CRITERIA)}, or a function; it is {criterion!r}")
    if not np.any(sweep.status == Status.SOLVED):
        raise ValueError(_no_solution(sweeps))
    if sweep.status.size == 1:
        point = float(sweep.radii[0]), float(sweep.gammas[0]), float(sweep.margins[0])
        return Choice(*point, sweep.margin_unit, (0, 0, 0), np.nan, np.full((1, 1, 1), np.nan))
    scores = class_scores(sweeps, CRITERIA[criterion] if isinstance(criterion, str) else criterion)
    if not np.any(np.isfinite(scores)):
        raise ValueError(
            "no point of the grid could be learnt without every one of the folds: give larger radii, smaller margins, "
            "or fewer folds"
        )
    return choose(sweep, scores)


def _no_solution(sweeps: Sequence[Sweep]) -> str:
    """Why nothing was solved, and what to do about it."""
    sweep, mu_max = sweeps[0], np.min([one.mu_max for one in sweeps], axis=0)
    if np.all(sweep.status == Status.INFEASIBLE):
        return (
            f"margin {sweep.margins.min():g} is above the largest that these labels allow, "
            f"{np.nanmax(mu_max):.4g}: give a smaller one, a fraction of it (margin_unit='fraction'), or "
            "margin=None to have it chosen"
        )
    reasons = "; ".join(Status(int(code)).sentence for code in np.unique(sweep.status))
    return f"MinCq found no vote: {reasons}. Give other margins or gammas, or scale the features"


def number(value: Any) -> Any:
    """A float, an array with one for each class, or None."""
    if value is None:
        return None
    return float(value) if np.ndim(value) == 0 else np.asarray(value)


class VoteClassifier(ClassifierMixin, BaseEstimator):
    """Prediction by a fitted vote of two classes, or by one for each class, ``model_``."""

    keep_sweep: bool

    def _learnt(self, model: PVMinCq, choice: Choice, sweep: Any) -> None:
        """Names the results that all classifiers have."""
        model = model._replace(classes=ClassNames(self.classes_.tolist()))
        self.model_, self.choice_, self.sweep_ = model, choice, sweep if self.keep_sweep else None
        self.weights_ = np.asarray(model.weights)
        self.centers_ = model.centers
        # A committee has no gamma of its own, and voters may have none.
        self.gamma_ = None if model.kkt_residual is None or np.isnan(choice.gamma) else choice.gamma
        self.margin_, self.mu_max_ = number(model.margin), number(model.mu_max)
        self.margin_fraction_ = None if self.mu_max_ is None else self.margin_ / self.mu_max_
        self.c_bound_, self.kkt_residual_ = number(model.c_bound), number(model.kkt_residual)

    def _chosen(self, sweep: Sweep, labels: np.ndarray, criterion: str | Criterion) -> tuple[PVMinCq, Choice, Any]:
        """The vote at the best point of the grid, that point, and the grid, or those of each class."""
        sweeps = (sweep,) if labels.ndim == 1 else check_matched(by_class(sweep, labels), self.classes_)
        choice = chosen(sweeps, criterion)
        return class_model(sweeps, choice.grid_index), choice, sweep if labels.ndim == 1 else sweeps

    def _own(self, task: Domains, criterion: str | Criterion, folds: int | None) -> Any:
        """What `_chosen` finds on one domain, on which every point is its own match."""
        given: Any = self
        margins = margin_list(given.margin, given.margin_unit)
        voters = voter_grid(given.voters, given.gamma, task.source)
        count, seed = fold_count(folds, task.labels, margins.size * voters.values.size), seed_of(given.random_state)
        options = GridOptions(voters, margins, given.margin_unit, given.most_voters, count, seed=seed)
        return self._chosen(own_grid(task.source, task.labels, options), task.labels, criterion)

    def _one_domain(self, X: Any, y: Any) -> Domains:
        """Checks a sample of one domain, and learns the names of features and classes."""
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        self.classes_, labels = signs(y)
        return Domains(X, labels, X, True)

    def decision_function(self, X: Any) -> np.ndarray:
        """The expected vote, sum_j w_j h_j(x), in [-1, 1].

        Above 0 it is for ``classes_[1]``; its size is the Q-margin of the paper. It is small where few voters reach a
        point, and when the margin mu that was asked for is small. The value of a row depends on that row alone. With
        more than two classes there is a vote for each class against the rest, in [-1, 1] as well; all of one first
        moment, but for a committee, whose members are.

        Args:
          X: points ``[m, d]``.

        Returns: ``[m]``, or ``[m, c]`` with columns in the order of ``classes_``.
        """
        check_is_fitted(self)
        return decision(self.model_, validate_data(self, X, dtype=np.float64, reset=False))

    def predict(self, X: Any) -> np.ndarray:
        """The majority vote, or the class of the largest vote.

        ``classes_[0]`` where the votes balance, as they do out of reach of all kernels.

        Args:
          X: points ``[m, d]``.

        Returns: labels ``[m]``, from ``classes_``.
        """
        votes = self.decision_function(X)
        return self.classes_[(votes > 0).astype(int) if votes.ndim == 1 else np.argmax(votes, axis=1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """What the Gibbs classifier would answer, not how sure one may be.

        (1 + sum_j w_j h_j(x)) / 2 is the probability that a voter drawn from the posterior Q, which then answers +1
        with probability (1 + h(x)) / 2, says ``classes_[1]``. It is on the right side of 1/2 but not calibrated, and
        all the closer to 1/2 the smaller the margin mu; wrap the classifier in
        `sklearn.calibration.CalibratedClassifierCV` for probabilities of the class. With more than two classes, the
        probabilities of the classes against the rest are divided by their sum.

        Args:
          X: points ``[m, d]``.

        Returns: ``[m, c]``, columns in the order of ``classes_``.
        """
        # Weights at their bounds add up to 1 but for rounding.
        vote = np.clip(self.decision_function(X), -1.0, 1.0)
        if vote.ndim == 1:
            return np.stack([(1 - vote) / 2, (1 + vote) / 2], axis=1)
        total = np.sum(1 + vote, axis=1, keepdims=True)
        # No voter has anything to say for any class.
        return np.divide(1 + vote, total, out=np.full_like(vote, 1 / vote.shape[1]), where=total > 0)
