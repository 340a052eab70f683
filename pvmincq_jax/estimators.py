"""MinCq and PV-MinCq as scikit-learn classifiers.

`MinCqClassifier` learns on one domain. Two adapt to a second one without labels: `PVMinCqClassifier` by the paper's
form, which carries labels to the target points, and `PVTransportClassifier` by ours, which moves source points and
stands larger shifts. All take labels of any kind, two classes or more, compute in float64 whatever JAX's precision, and
choose by validation what is not given.

They need scikit-learn, which nothing else does on import but `pvmincq_jax.scorers`: ``pip install
'pvmincq-jax[sklearn]'``.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pvmincq_jax._one_domain import MinCqClassifier
from pvmincq_jax._sklearn import Domains, Given, draw_count, fold_count, margin_list, seed_of, voter_grid
from pvmincq_jax._two_domains import AdaptedClassifier, one_form
from pvmincq_jax._types import MarginUnit, RadiusUnit
from pvmincq_jax.adaptation.class_grids import fit_transport_classes
from pvmincq_jax.adaptation.committee import PART
from pvmincq_jax.adaptation.moved_criteria import at_rest, transport_criterion
from pvmincq_jax.adaptation.moves import Moves
from pvmincq_jax.adaptation.options import GridOptions
from pvmincq_jax.adaptation.ratio import Ratio
from pvmincq_jax.adaptation.seats import MOST_VOTERS, Centers
from pvmincq_jax.adaptation.sweeps import label_grid
from pvmincq_jax.adaptation.transport_sweeps import MARGIN_FRACTIONS as MOVED_FRACTIONS
from pvmincq_jax.adaptation.validate import fit_transport_validated
from pvmincq_jax.matching.curve import PV_LEVELS
from pvmincq_jax.matching.space import Metric
from pvmincq_jax.voting.families import VoterKind

__all__ = ["MinCqClassifier", "PVMinCqClassifier", "PVTransportClassifier"]


class PVMinCqClassifier(AdaptedClassifier):
    """A majority vote for a target domain without labels, learnt from a labelled source domain (Algorithm 3).

    Source and target points within a radius are matched, the labels are carried over, and MinCq learns on the target
    points that got one: `pvmincq_jax.fit_validated`, for labels of any kind. Radius, margin and gamma that are not
    given are chosen without target labels.

    `fit` takes both domains in one array with ``sample_domain`` (0 or above: source, below 0: target), as skada does;
    `fit_domains` takes them apart, as ADAPT does. Several sources, or several targets, are pooled. Labels of target
    rows are never read: they may be anything. **Without any domain information the data is one domain**: every point is
    its own match, PV is 0, the radius plays no part, and the vote is that of `MinCqClassifier`.

    What changes with the size of the samples: at most ``most_voters`` kernels vote, so that up to 300 points each has
    its own; from 3 000 points on matchings are averaged over fewer draws; and criteria ask some 1 000 target points for
    their neighbours.

    Args:
      radius: of the matching; a number, a list to choose from, or None for radii at ten levels of PV.
      margin: mu; a number, a list, or None.
      gamma: of the Gaussian kernels; a number, a list, or None for 1/2, 2 and 8 over the median squared distance
        within the target. Of other voters, the values that families are made of, see `pvmincq_jax.sweep`.
      radius_unit: how to read ``radius``: "absolute", "pv" or "bottleneck", see `pvmincq_jax.grid_radii`.
      margin_unit: "fraction" of the largest margin that the self-labels allow, in (0, 1], or "absolute".
      draws: how many random maximum matchings are averaged; 1 for the paper's single one. None for 16, and fewer from
        3 000 points on: down to a quarter at four times as many.
      criterion: what is minimised over the grid: "label_criterion" (None), "rs_pv_cbound", "rs_pv" (the paper's),
        "rs_pv_risk", "rs", or a function from a `pvmincq_jax.Sweep` to scores. With more than two classes a function
        gets the grid of each class against the rest, and half the sum of its scores counts.
      voters: "rbf" for Gaussian kernels, "stumps" for ten decision stumps per feature, a list of functions from points
        to values in [-1, 1], a family such as `pvmincq_jax.StumpVoters`, several, or a function from a value to one;
        see `pvmincq_jax.Voters`.
      centers: where kernels sit: on "target" points (those matched), "source" points, or "both".
      most_voters: how many kernels at most; see `pvmincq_jax.pv_mincq`.
      metric: of the matching, see `pvmincq_jax.match`.
      folds: of the source, for the source risk; fewer if the smallest class has fewer points. None for 5, or 2 with
        more than two classes.
      random_state: of folds and matchings: a seed, a `numpy.random.RandomState`, or None.
      keep_sweep: whether the whole grid stays with the classifier, and is pickled with it.

    Attributes:
      adapted_: whether there were two domains to adapt.
      classes_: the classes of the source. With c > 2 of them there is a vote for each against the rest, in which the
        class weighs as much as all others together, and one radius, gamma and margin for all; labels and weights below
        have c rows, and mu, mu_max, C-bound and residual are ``[c]``.
      n_features_in_: d; and ``feature_names_in_`` where the features have names.
      source_, source_labels_: the source sample as it was learnt from ``[m_s, d]``, ``[m_s]`` in {-1, +1}.
      target_: the target sample ``[m_t, d]``.
      pairs_: who carried its label to whom: rows of ``source_``, rows of ``target_``, share of the draws.
      pv_: the perturbed variation at the radius.
      self_labels_: of the target points ``[m_t]`` in [-1, 1].
      self_label_weights_: how far each of these points counts; 0 for one without a match.
      radius_, gamma_: chosen or given; the radius is 0 with one domain, gamma None if voters have no such value.
      margin_: the first moment of the vote on the points learnt from: mu, absolute. With more than two classes all have
        the smallest of their margins.
      mu_max_: the largest margin that the self-labels allow.
      margin_fraction_: margin_ / mu_max_.
      criterion_: its value over the grid ``[r, g, k]``; NaN if there was nothing to choose.
      choice_: the chosen point, a `pvmincq_jax.Choice`.
      sweep_: all figures of the grid, a `pvmincq_jax.Sweep`; or one for each class, of how far it is ahead of the best
        other one. None without ``keep_sweep``.
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

    @one_form
    def __init__(
        self,
        *,
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
        keep_sweep: bool = True,
    ) -> None:
        """Keeps the parameters; `fit` checks them."""
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
        self.keep_sweep = keep_sweep

    def _fit(self, task: Domains) -> "PVMinCqClassifier":
        criterion = "label_criterion" if self.criterion is None else self.criterion
        if task.single:
            return self._named(task, *self._own(task, criterion, self.folds))
        margins = margin_list(self.margin, self.margin_unit)
        voters = voter_grid(self.voters, self.gamma, task.target)
        radii = self._radii(task, PV_LEVELS, "pv")
        draws, seed = draw_count(self.draws, 16, len(task.target)), seed_of(self.random_state)
        folds = fold_count(self.folds, task.labels, margins.size * voters.values.size * radii.size)
        options = GridOptions(voters, margins, self.margin_unit, self.most_voters, folds, draws, seed)
        sweep = label_grid(task.source, task.labels, task.target, radii, self.centers, self.metric, options)
        return self._named(task, *self._chosen(sweep, task.labels, criterion))


class PVTransportClassifier(AdaptedClassifier):
    """A majority vote for a target domain without labels, learnt on source points that move there. Not in the paper.

    Source points move to the mean of the target points that they are matched with, keep their labels, and MinCq learns
    there: `pvmincq_jax.fit_transport_validated`, for labels of any kind, which stands larger shifts than the paper's
    form. Radius, margin and gamma that are not given are chosen without target labels, and the best part of the grid
    votes. Samples, domains and labels are as in `PVMinCqClassifier`, and one domain, too: it has the vote that
    `PVMinCqClassifier` has there, and what is said of maps and the criterion plays no part.

    What changes with the size of the samples: at most ``most_voters`` kernels vote, so that up to 300 points each has
    its own; from 750 points on matchings are averaged over fewer draws; criteria ask some 1 000 target points for their
    neighbours; and from 5 800 points a domain on, radii beyond the bottleneck radius that would reach more than 2^25
    pairs are left out.

    Args:
      radius: of the matching; a number, a list to choose from, or None: see `pvmincq_jax.transport_sweep`.
      margin, gamma, radius_unit, margin_unit, voters, metric, random_state, keep_sweep: as in `PVMinCqClassifier`.
      draws: how many random maximum matchings are averaged. None for 64, and fewer from 750 points on: down to a
        quarter at four times as many.
      criterion: what is minimised over the grid: None for `pvmincq_jax.transport_criterion`, or a function from a
        `pvmincq_jax.TransportSweep` to scores; with more than two classes as in `PVMinCqClassifier`.
      most_voters: how many kernels at most, on the moved points; see `pvmincq_jax.pv_mincq`.
      own_scale: whether the grid also holds maps that bring each feature to the target's mean and deviation first,
        which suits domains that differ in units, offsets or size, class by class alike; None: unless radii are given.
      even: whether the smaller sample is repeated to the size of the larger one.
      ratio: the share of ``classes_[1]`` in the target, or with more than two classes the shares of all ``classes_``;
        "source" if they are those of the source; or "estimated", see `pvmincq_jax.fit_transport_validated`; of more
        than two classes they are then those of the source unless the ratio alone explains the target.
      part: of the grid that votes, see `pvmincq_jax.committee`; None for the best point alone.

    Attributes:
      adapted_: whether the best point of the grid adapts; False with one domain, or where the source as it is was
        judged best, or explains the target.
      shift_: what has changed, a `pvmincq_jax.Shift`: a ``sentence``, the class shares and p-value in ``label_shift``,
        the subspace in ``map``. None with one domain, and where the criterion, radius, metric or own_scale was given.
      sweep_: all figures of the grid, a `pvmincq_jax.TransportSweep`, or one for each class.
      self_labels_, self_label_weights_: the labels of the moved source points ``[m_s]``, and how far each counts.
      radius_, gamma_, mu_max_, margin_fraction_, kkt_residual_: None for a committee of several votes; the radius and
        gamma of its best member are in ``choice_``.
      margin_, c_bound_: of the vote on the points that it learnt from; of a committee on those of its best member,
        whose pairs, PV and labels are in ``pairs_``, ``pv_`` and ``self_labels_``.

      All others are as in `PVMinCqClassifier`.

    Example:
      >>> import numpy as np
      >>> from pvmincq_jax.estimators import PVTransportClassifier
      >>> rng = np.random.default_rng(0)
      >>> ys = np.repeat(["blue", "red"], 20)
      >>> Xs = rng.normal(size=(40, 2)) * 0.3 + np.where(ys == "red", 1.0, -1.0)[:, None]
      >>> Xt = Xs + np.array([2.5, 0.0])
      >>> model = PVTransportClassifier(draws=8).fit_domains(Xs, ys, Xt)
      >>> print((model.predict(Xt) == ys).mean(), model.adapted_)
      1.0 True
    """

    @one_form
    def __init__(
        self,
        *,
        radius: Given = None,
        margin: Given = None,
        gamma: Given = None,
        radius_unit: RadiusUnit = "absolute",
        margin_unit: MarginUnit = "fraction",
        draws: int | None = None,
        criterion: Callable[[Any], np.ndarray] | None = None,
        voters: VoterKind = "rbf",
        most_voters: int = MOST_VOTERS,
        metric: Metric = "euclidean",
        random_state: Any = 0,
        keep_sweep: bool = True,
        own_scale: bool | None = None,
        even: bool = True,
        ratio: Ratio | Sequence[float] = "source",
        part: float | None = PART,
    ) -> None:
        """Keeps the parameters; `fit` checks them."""
        self.radius = radius
        self.margin = margin
        self.gamma = gamma
        self.radius_unit = radius_unit
        self.margin_unit = margin_unit
        self.draws = draws
        self.criterion = criterion
        self.voters = voters
        self.most_voters = most_voters
        self.metric = metric
        self.random_state = random_state
        self.keep_sweep = keep_sweep
        self.own_scale = own_scale
        self.even = even
        self.ratio = ratio
        self.part = part

    def _fit(self, task: Domains) -> "PVTransportClassifier":
        self.shift_ = None
        if task.single:
            return self._named(task, *self._own(task, "label_criterion", None))
        criterion = transport_criterion if self.criterion is None else self.criterion
        if not callable(criterion):
            raise ValueError(f"criterion must be None or a function of a TransportSweep; it is {criterion!r}")
        voters = voter_grid(self.voters, self.gamma, task.target)
        margins = margin_list(self.margin, self.margin_unit, MOVED_FRACTIONS)
        radii = None if self.radius is None else self._radii(task, (), self.radius_unit)
        draws, seed = draw_count(self.draws, 64, len(task.source)), seed_of(self.random_state)
        maps: Any = {
            "own_scale": self.own_scale,
            "even": self.even,
            "draws": draws,
            "seed": seed,
            "metric": self.metric,
        }
        judged: Any = {"criterion": criterion, "ratio": self.ratio, "part": self.part}
        if task.labels.ndim == 2:
            options = GridOptions(voters, margins, self.margin_unit, self.most_voters, seed=seed)
            learnt: Any = fit_transport_classes(*task[:3], Moves(radii, **maps), options, names=self.classes_, **judged)
        else:
            learnt = fit_transport_validated(
                task.source,
                task.labels,
                task.target,
                radii=radii,
                margins=margins,
                gammas=None if np.isnan(voters.values[0]) else voters.values,
                voters=self.voters,
                most_voters=self.most_voters,
                margin_unit=self.margin_unit,
                **maps,
                **judged,
            )
        model, choice, sweep, self.shift_ = learnt
        grid = sweep if task.labels.ndim == 1 else sweep[0]
        return self._named(task, model, choice, sweep, adapted=not bool(at_rest(grid)[choice.grid_index[0]]))
