"""MinCq and PV-MinCq as scikit-learn classifiers.

`MinCqClassifier` learns on one domain, `PVMinCqClassifier` adapts to a second one without labels. Both take labels of
any kind, two classes or more, compute in float64 whatever JAX's precision, and choose by validation what is not given.
They fill all cores with threads of their own and compile nothing, as a rule.

They need scikit-learn, which nothing else does on import but `pvmincq_jax.scorers`: ``pip install
'pvmincq-jax[sklearn]'``.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from pvmincq_jax._one_domain import MinCqClassifier
from pvmincq_jax._sklearn import (
    Domains,
    Given,
    VoteClassifier,
    draw_count,
    fold_count,
    gamma_list,
    listed,
    margin_list,
    seed_of,
    signs,
    source_rows,
    validate_data,
)
from pvmincq_jax._types import MarginUnit, RadiusUnit
from pvmincq_jax.adaptation.choice import Choice
from pvmincq_jax.adaptation.class_grids import fit_transport_classes
from pvmincq_jax.adaptation.committee import PART, at_rest
from pvmincq_jax.adaptation.model import PVMinCq
from pvmincq_jax.adaptation.moved_criteria import transport_criterion
from pvmincq_jax.adaptation.moves import Moves
from pvmincq_jax.adaptation.options import GridOptions
from pvmincq_jax.adaptation.own import own_grid
from pvmincq_jax.adaptation.ratio import Ratio
from pvmincq_jax.adaptation.seats import MOST_VOTERS, Centers
from pvmincq_jax.adaptation.sweeps import label_grid
from pvmincq_jax.adaptation.transport_sweeps import MARGIN_FRACTIONS as MOVED_FRACTIONS
from pvmincq_jax.adaptation.validate import fit_transport_validated
from pvmincq_jax.matching.curve import PV_LEVELS, grid_radii
from pvmincq_jax.matching.space import Metric
from pvmincq_jax.voting.families import VoterKind, on_points

__all__ = ["MinCqClassifier", "PVMinCqClassifier"]


class PVMinCqClassifier(VoteClassifier):
    """A majority vote for a target domain without labels, learnt from a labelled source domain (Algorithm 3).

    Source and target points within a radius are matched, the labels are carried over, and MinCq learns on the target
    points that got one; or, in the form "transport", source points move to their matched target points and MinCq
    learns there. Radius, margin and gamma that are not given are chosen without target labels.

    `fit` takes both domains in one array with ``sample_domain`` (0 or above: source, below 0: target), as skada does;
    `fit_domains` takes them apart, as ADAPT does. Several sources, or several targets, are pooled. Labels of target
    rows are never read: they may be anything. **Without any domain information the data is one domain**: every point is
    its own match, PV is 0, the radius plays no part, and the vote is that of `MinCqClassifier` over Gaussian kernels.

    The votes of the grid are solved to 1e-3, which is what a criterion can see, on all cores; a committee (``part``) is
    made of these, and a single chosen vote is solved to 1e-7. `pvmincq_jax.fit_validated` and
    `pvmincq_jax.fit_transport_validated` with ``exact=True`` solve all of them to 1e-7.

    What changes with the size of the samples: at most ``most_voters`` kernels vote, so that up to 300 points each has
    its own; from 750 points on, or 3 000 in the label form, matchings are averaged over fewer draws; criteria ask some
    1 000 target points for their neighbours; and from 5 800 points a domain on, the transport form leaves out radii
    beyond the bottleneck radius that would reach more than 2^25 pairs.

    Args:
      form: "transport" for `pvmincq_jax.fit_transport_validated`, which is not in the paper and stands larger shifts;
        "label" for the paper's.
      radius: of the matching; a number, a list to choose from, or None: see `pvmincq_jax.transport_sweep`, and for the
        label form radii at ten levels of PV.
      margin: mu; a number, a list, or None.
      gamma: of the Gaussian kernels; a number, a list, or None for 1/2, 2 and 8 over the median squared distance
        within the target.
      radius_unit: how to read ``radius``: "absolute", "pv" or "bottleneck", see `pvmincq_jax.grid_radii`.
      margin_unit: "fraction" of the largest margin that the self-labels allow, in (0, 1], or "absolute".
      draws: how many random maximum matchings are averaged; 1 for the paper's single one. None for 16, or 64 for the
        transport form, and fewer from 3 000 points on (750 for the transport form): down to a quarter at four times
        as many.
      criterion: what is minimised over the grid: "label_criterion" (None), "rs_pv_cbound", "rs_pv" (the
        paper's), "rs_pv_risk", "rs", or a function from a `pvmincq_jax.Sweep` to scores. For the transport form,
        None for `pvmincq_jax.transport_criterion`, or a function from a `pvmincq_jax.TransportSweep`.
      voters: "rbf" for Gaussian kernels, "stumps" for ten decision stumps per feature, a list of functions from points
        to values in [-1, 1], or a family such as `pvmincq_jax.StumpVoters`.
      centers: where kernels sit: on "target" points (those matched), "source" points, or "both". In the transport form
        they sit on the moved points.
      most_voters: how many kernels at most; see `pvmincq_jax.pv_mincq`.
      metric: of the matching, see `pvmincq_jax.match`.
      folds: of the source, for the source risk; fewer if the smallest class has fewer points. None for 5, or 2 with
        more than two classes.
      random_state: of folds and matchings: a seed, a `numpy.random.RandomState`, or None.
      own_scale: for the transport form: whether the grid also holds maps that bring each feature to the target's mean
        and deviation first, which suits domains that differ in units, offsets or size, class by class alike; None:
        unless radii are given.
      even: for the transport form: whether the smaller sample is repeated to the size of the larger one.
      ratio: for the transport form: the share of ``classes_[1]`` in the target, or with more than two classes the
        shares of all ``classes_``; "source" if they are those of the source; or "estimated": see
        `pvmincq_jax.fit_transport_validated`. Of more than two classes they are those of the source unless the ratio
        alone explains the target.
      part: for the transport form: of the grid that votes, see `pvmincq_jax.committee`; None for the best point alone.

    Attributes:
      adapted_: whether the best point of the grid adapts; False with one domain, or where the source as it is was
        judged best, or explains the target.
      shift_: what has changed, a `pvmincq_jax.Shift`: a ``sentence``, the class shares and p-value in ``label_shift``,
        the subspace in ``map``. None in the label form, and where the radius, the metric or own_scale was given.
      classes_: the classes of the source. With c > 2 of them there is a vote for each against the rest, in which the
        class weighs as much as all others together, and one radius, gamma and margin for all; labels and weights below
        have c rows, and mu, mu_max, C-bound and residual are ``[c]``.
      n_features_in_: d; and ``feature_names_in_`` where the features have names.
      source_, source_labels_: the source sample as it was learnt from ``[m_s, d]``, ``[m_s]`` in {-1, +1}.
      target_: the target sample ``[m_t, d]``.
      pairs_: who carried its label to whom: rows of ``source_``, rows of ``target_``, share of the draws.
      pv_: the perturbed variation at the radius.
      self_labels_: of the target points ``[m_t]`` in [-1, 1]; in the transport form, the labels of the moved source
        points ``[m_s]``, which are the ``centers_``.
      self_label_weights_: how far each of these points counts; 0 for one without a match.
      radius_, gamma_: chosen or given; the radius is 0 with one domain, gamma None without kernels.
      margin_: mu, absolute; ``margin_fraction_`` is mu / mu_max.
      mu_max_: the largest margin that the self-labels allow.
      criterion_: its value over the grid ``[r, g, k]``; NaN if there was nothing to choose.
      choice_: the chosen point, a `pvmincq_jax.Choice`.
      sweep_: all figures of the grid, a `pvmincq_jax.Sweep` or `pvmincq_jax.TransportSweep`; or one for each class,
        of how far it is ahead of the best other one.
      c_bound_: of the vote on the points that it learnt from.
      kkt_residual_: how far the weights are from optimal, relative.
      weights_: of the voters ``[n]``, or ``[c, n]``, each row scaled to the smallest of the classes' margins.
      centers_: of Gaussian kernels ``[n, d]``, or None.
      model_: all of it as a `pvmincq_jax.PVMinCq`, for `pvmincq_jax.decision` and `pvmincq_jax.save_model`.

    Example:
      >>> import numpy as np
      >>> from pvmincq_jax.estimators import PVMinCqClassifier
      >>> rng = np.random.default_rng(0)
      >>> ys = np.repeat(["blue", "red"], 20)
      >>> Xs = rng.normal(size=(40, 2)) * 0.3 + np.where(ys == "red", 1.0, -1.0)[:, None]
      >>> Xt = Xs + np.array([0.8, -0.8])
      >>> model = PVMinCqClassifier(radius=1.3, gamma=1.0, margin=0.2).fit_domains(Xs, ys, Xt)
      >>> print((model.predict(Xt) == ys).mean(), round(model.pv_, 2))
      1.0 0.0

      The same with both domains in one array; target labels are not read:

      >>> X, domain = np.concatenate([Xs, Xt]), np.repeat([1, -2], 40)
      >>> y = np.concatenate([ys, np.repeat("unknown", 40)])
      >>> again = PVMinCqClassifier(radius=1.3, gamma=1.0, margin=0.2).fit(X, y, sample_domain=domain)
      >>> print(again.classes_, bool(np.all(again.weights_ == model.weights_)))
      ['blue' 'red'] True
    """

    # Metadata routing: pipelines and searches hand the domains on to `fit` without being asked.
    __metadata_request__fit = {"sample_domain": True}  # noqa: RUF012

    def __init__(
        self,
        *,
        form: Literal["label", "transport"] = "transport",
        radius: Given = None,
        margin: Given = None,
        gamma: Given = None,
        radius_unit: RadiusUnit = "absolute",
        margin_unit: MarginUnit = "fraction",
        draws: int | None = None,
        criterion: str | Callable[[Any], np.ndarray] | None = None,
        voters: VoterKind = "rbf",
        centers: Centers = "target",
        most_voters: int = MOST_VOTERS,
        metric: Metric = "euclidean",
        folds: int | None = None,
        random_state: Any = 0,
        own_scale: bool | None = None,
        even: bool = True,
        ratio: Ratio | Sequence[float] = "source",
        part: float | None = PART,
    ) -> None:
        """Keeps the parameters; `fit` checks them."""
        self.own_scale = own_scale
        self.even = even
        self.ratio = ratio
        self.part = part
        self.form = form
        self.radius = radius
        self.margin = margin
        self.gamma = gamma
        self.radius_unit = radius_unit
        self.margin_unit = margin_unit
        self.draws = draws
        self.criterion = criterion
        self.voters = voters
        self.centers = centers
        self.most_voters = most_voters
        self.metric = metric
        self.folds = folds
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_domain: Any = None) -> "PVMinCqClassifier":
        """Learns the vote.

        Args:
          X: points of both domains ``[m, d]``, dense.
          y: labels ``[m]``; those of target rows are not read.
          sample_domain: 0 or above for source rows, below 0 for target rows ``[m]``; None if there is one domain.

        Returns: the classifier itself.
        """
        if sample_domain is None:
            return self._fit(self._one_domain(X, y))
        X = validate_data(self, X, dtype=np.float64)
        source = source_rows(sample_domain, len(X))
        if y is None or np.shape(y)[:1] != (len(X),):
            raise ValueError(
                f"y must have one entry per row of X ({len(X)}), whatever it is for target rows; its shape is "
                f"{np.shape(y)}"
            )
        # Taken out first: in one array, text or NaN in target rows would turn the source's labels into text or floats.
        known = (
            [label for label, kept in zip(y, source) if kept] if isinstance(y, list | tuple) else np.asarray(y)[source]
        )
        self.classes_, labels = signs(known)
        return self._fit(Domains(X[source], labels, X[~source], False))

    def fit_domains(self, Xs: Any, ys: Any, Xt: Any) -> "PVMinCqClassifier":
        """Learns the vote from two samples.

        Args:
          Xs: source points ``[m_s, d]``, dense.
          ys: their labels ``[m_s]``.
          Xt: target points ``[m_t, d]``.

        Returns: the classifier itself.
        """
        Xs, ys = validate_data(self, Xs, ys, dtype=np.float64)
        Xt = validate_data(self, Xt, dtype=np.float64, reset=False)
        self.classes_, labels = signs(ys)
        return self._fit(Domains(Xs, labels, Xt, False))

    def _fit(self, task: Domains) -> "PVMinCqClassifier":
        if self.form not in ("label", "transport"):
            raise ValueError(f"form must be 'label' or 'transport'; it is {self.form!r}")
        moving = self.form == "transport" and not task.single
        found = self._transport(task) if moving else self._label(task)
        self._learnt(*found[:3])
        model, choice = found[:2]
        self.shift_ = found[3] if len(found) > 3 else None
        grid = self.sweep_ if task.labels.ndim == 1 else self.sweep_[0]
        self.adapted_ = not task.single and not bool(at_rest(grid)[choice.grid_index[0]])
        self.criterion_ = choice.scores
        self.source_, self.source_labels_, self.target_ = task.source, task.labels, task.target
        self.radius_, self.pv_, self.pairs_ = float(model.radius), float(model.pv), model.pairs
        self.self_labels_, self.self_label_weights_ = np.asarray(model.labels), np.asarray(model.label_weights)
        return self

    def _label(self, task: Domains) -> tuple[PVMinCq, Choice, Any]:
        """The paper's form: labels are carried to the target points."""
        margins = margin_list(self.margin, self.margin_unit)
        gammas = gamma_list(self.gamma, task.target, self.voters)
        radii = np.zeros(1) if task.single else self._radii(task, PV_LEVELS, "pv")
        draws, seed = draw_count(self.draws, 16, len(task.target)), seed_of(self.random_state)
        folds = fold_count(self.folds, task.labels, margins.size * gammas.size * radii.size)
        options = GridOptions(
            gammas, margins, self.margin_unit, self.voters, self.most_voters, folds, draws, seed, exact=False
        )
        if task.single:
            sweep = own_grid(task.source, task.labels, options)
        else:
            sweep = label_grid(task.source, task.labels, task.target, radii, self.centers, self.metric, options)
        return self._chosen(sweep, task.labels, "label_criterion" if self.criterion is None else self.criterion)

    def _transport(self, task: Domains) -> tuple[PVMinCq, Choice, Any, Any]:
        """Source points move to their matched target points and keep their labels."""
        criterion = transport_criterion if self.criterion is None else self.criterion
        if not callable(criterion):
            raise ValueError(
                f"criterion must be None or a function of a TransportSweep in the transport form; it is {criterion!r}"
            )
        gammas = gamma_list(self.gamma, task.target, self.voters)
        margins = margin_list(self.margin, self.margin_unit, MOVED_FRACTIONS)
        radii = None if self.radius is None else self._radii(task, (), self.radius_unit)
        draws, seed = draw_count(self.draws, 64, len(task.source)), seed_of(self.random_state)
        judged: Any = {"criterion": criterion, "ratio": self.ratio, "part": self.part}
        if task.labels.ndim == 2:
            moves = Moves(radii, own_scale=self.own_scale, even=self.even, draws=draws, seed=seed, metric=self.metric)
            options = GridOptions(
                gammas, margins, self.margin_unit, self.voters, self.most_voters, seed=seed, exact=False
            )
            return fit_transport_classes(*task[:3], moves, options, names=self.classes_, **judged)
        return fit_transport_validated(
            *task[:3],
            radii=radii,
            margins=margins,
            gammas=gammas if on_points(self.voters) else None,
            draws=draws,
            seed=seed,
            voters=self.voters,
            most_voters=self.most_voters,
            margin_unit=self.margin_unit,
            metric=self.metric,
            own_scale=self.own_scale,
            even=self.even,
            **judged,
        )

    def _radii(self, task: Domains, default: Sequence[float], default_unit: RadiusUnit) -> np.ndarray:
        """Absolute radii, increasing; 0, where the samples share points, is the smallest number above it."""
        unit = default_unit if self.radius is None else self.radius_unit
        values = listed("radius", self.radius, lambda: default)
        if unit != "pv" and np.any(values == 0):
            raise ValueError(f"radius must be above 0; it is {self.radius!r}")
        radii = grid_radii(task.source, task.target, values, unit, self.metric)
        return np.unique(np.maximum(radii, np.finfo(float).tiny))
