"""MinCq and PV-MinCq as scikit-learn classifiers.

`MinCqClassifier` learns on one domain. Two adapt to a second one without labels: `PVMinCqClassifier` by the paper's
form, which carries labels to the target points, and `PVTransportClassifier` by ours, which moves source points and
stands larger shifts. All take labels of any kind, two classes or more, compute in float64 whatever JAX's precision, and
choose by validation what is not given.

They need scikit-learn, of the extra ``[sklearn]``, which nothing else does on import but `pvmincq_jax.scorers`.
"""

import dataclasses
from typing import Any

import numpy as np

from pvmincq_jax._sklearn import AdaptedClassifier, Domains, VoteClassifier, fields_are_parameters, validate_data
from pvmincq_jax.adaptation import validate
from pvmincq_jax.adaptation.choice import TOP_FRACTION
from pvmincq_jax.adaptation.criteria import Criterion, label_criterion, rs, rs_pv, rs_pv_cbound, rs_pv_risk
from pvmincq_jax.adaptation.transport_criteria import transport_criterion
from pvmincq_jax.voting.centers import CenterKind
from pvmincq_jax.voting.families import VoterKind

__all__ = ["MinCqClassifier", "PVMinCqClassifier", "PVTransportClassifier"]

_CRITERIA: dict[str, Criterion] = {one.__name__: one for one in (rs, rs_pv, rs_pv_cbound, label_criterion, rs_pv_risk)}


@fields_are_parameters
class MinCqClassifier(VoteClassifier):
    """The majority vote of least C-bound, on one domain (Algorithm 1).

    Args:
      voters: "rbf" for Gaussian kernels exp(-gamma |x - c|^2) on points learnt from, "stumps" for ten stumps per
        feature, a list of functions from points to values in [-1, 1], a family such as `pvmincq_jax.StumpVoters`,
        several, or a function from a value to one; see `pvmincq_jax.Voters`.
      gamma: of the kernels; a number, a list to choose from, or None for 1/2, 2 and 8 over the median squared distance.
        Of other voters, the values that families are made of, see `pvmincq_jax.sweep`.
      margin: mu; a number, a list to choose from, or None for a list.
      margin_unit: "fraction" of the largest margin that the sample allows, in (0, 1], or "absolute".
      most_voters: how many kernels at most; see `pvmincq_jax.pv_mincq`.
      folds: of the cross-validation that chooses what is not given; fewer if the smallest class has fewer points. None
        for 5, or 2 with more than two classes. Ties go to the smallest gamma, then to the largest margin.
      class_weight: weights of the classes, which multiply those of their points: a dictionary from class to weight,
        "balanced" for m / (2 m_class), or None. More than two classes are balanced in any case: by number, before
        weights count.
      random_state: of the folds: a seed, a `numpy.random.RandomState`, or None.
      keep_sweep: whether the whole grid stays with the classifier, and is pickled with it.

    Attributes:
      classes_: the classes. With c > 2 of them there is a vote for each against the rest, in which the class weighs as
        much as all others together, and what is one number here is ``[c]``.
      n_features_in_: d; and ``feature_names_in_`` where the features have names.
      weights_: signed weights of the voters ``[n]``; the paper's Q is (weights_ + 1/n) / 2. With more than two classes
        ``[c, n]``, each row scaled to the smallest of the classes' margins.
      model_: all of it as a `pvmincq_jax.PVMinCq`, for `pvmincq_jax.save_model`; ``model_.voters`` are the voters.
      centers_: of the kernels ``[n, d]``, or None.
      gamma_: of the kernels, or the value that the family was made of, chosen or given; None if there is none.
      margin_: mu, absolute; ``margin_fraction_`` is mu / mu_max. With more than two classes all have the smallest of
        their margins.
      mu_max_: the largest margin that the sample allows.
      c_bound_: the C-bound on the training sample.
      probability_scale_: of `predict_proba`.
      kkt_residual_: how far the weights are from optimal, relative.
      choice_, sweep_: the chosen point and all figures, a `pvmincq_jax.Choice` and a `pvmincq_jax.Sweep`; the sweep is
        None without ``keep_sweep``.
      cv_risk_: mean risk on the folds left out ``[g, k]``, NaN if there was nothing to choose and ``folds`` is None.
      gammas_, margins_: what it was chosen from ``[g]``, ``[k]``.

    Example:
      >>> import numpy as np
      >>> from pvmincq_jax.estimators import MinCqClassifier
      >>> X = np.random.default_rng(0).normal(size=(40, 2))
      >>> y = np.where(X[:, 0] > 0, "right", "left")
      >>> model = MinCqClassifier(margin=0.2).fit(X, y)
      >>> print(model.predict([[2.0, 0.0], [-2.0, 0.0]]), round(model.margin_fraction_, 3))
      ['right' 'left'] 0.2
      >>> print(model.score(X, y) > 0.95, model.kkt_residual_ < 1e-7)
      True True
    """

    voters: VoterKind = dataclasses.field(default="rbf", kw_only=False)
    folds: int | None = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "MinCqClassifier":
        """Learns the vote.

        Args:
          X: points ``[m, d]``, dense.
          y: labels ``[m]`` of two classes or more.
          sample_weight: ``[m]``, of the points in MinCq and in the risk on a fold; a row of weight 0 is left out.

        Returns: the classifier itself.
        """
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        fit = self._call(validate.fit_mincq_validated, self._read(X, y, sample_weight), rs)
        self._name(fit, True)
        self.cv_risk_ = fit.choice.scores[0]
        self.gammas_, self.margins_ = None if np.isnan(fit.sweep.gammas[0]) else fit.sweep.gammas, fit.sweep.margins
        return self


@fields_are_parameters
class PVMinCqClassifier(AdaptedClassifier):
    """A majority vote for a target domain without labels, learnt from a labelled source domain (Algorithm 3).

    Source and target points within a radius are matched, the labels are carried over, and MinCq learns on the target
    points that got one: `pvmincq_jax.fit_validated`, for labels of any kind. Radius, margin and gamma that are not
    given are chosen without target labels.

    `fit` takes both domains in one array with ``sample_domain`` (0 or above: source, below 0: target), as skada does;
    `fit_domains` takes them apart, as ADAPT does, and `fit_target` adapts a fitted source to another target. Several
    sources, or several targets, are pooled. Labels of target rows are never read: they may be anything. **Without any
    domain information the data is one domain**: every point is its own match, PV is 0, the radius plays no part, and
    the vote is that of `MinCqClassifier`.

    What changes with the size of the samples: at most ``most_voters`` kernels vote, so that up to 300 points each has
    its own; of more than ``most_points`` of a domain a random part is matched, and the chosen vote is learnt on all;
    criteria ask some 1 000 target points for their neighbours.

    Args:
      radius: of the matching; a number, a list to choose from, or None for radii at ten levels of PV.
      gamma: as in `MinCqClassifier`; None for 1/2, 2 and 8 over the median squared distance within the target.
      radius_unit: how to read ``radius``: "absolute", "pv" or "bottleneck", see `pvmincq_jax.grid_radii`.
      margin, margin_unit, voters, most_voters, class_weight, keep_sweep: as in `MinCqClassifier`.
      draws: how many random maximum matchings are averaged; 1 for the paper's single one. None for 16, and fewer from
        3 000 points on: down to a quarter at four times as many.
      criterion: what is minimised over the grid: "label_criterion" (None), "rs_pv_cbound", "rs_pv" (the paper's),
        "rs_pv_risk", "rs", or a function from a `pvmincq_jax.Sweep` to scores, see `pvmincq_jax.fit_validated`.
      centers: where kernels sit: on "target" points (those matched), "source" points, or "both".
      most_points: of a domain that are matched; of more, a random part is, see `pvmincq_jax.fit_validated`.
      metric: of the matching, see `pvmincq_jax.match`.
      folds: of the source, for the source risk; fewer if the smallest class has fewer points. None for 5, or 2 with
        more than two classes.
      random_state: of folds and matchings: a seed, a `numpy.random.RandomState`, or None.

    Attributes:
      adapted_: whether there were two domains to adapt.
      classes_: the classes of the source. With c > 2 of them there is a vote for each against the rest, in which the
        class weighs as much as all others together, and one radius, gamma and margin for all; labels and weights below
        have c rows, and mu, mu_max, C-bound and residual are ``[c]``.
      source_, source_labels_, source_weights_: the source sample as it was learnt from, without rows of weight 0
        ``[m_s, d]``; labels ``[m_s]`` are -1 and +1, or numbers of more than two classes.
      target_: the target sample ``[m_t, d]``.
      pairs_: who carried its label to whom: rows of ``source_``, rows of ``target_``, share of the draws.
      pv_: the perturbed variation at the radius.
      self_labels_: of the target points ``[m_t]`` in [-1, 1].
      self_label_weights_: how far each of these points counts; 0 for one without a match.
      radius_, gamma_: chosen or given; the radius is 0 with one domain, gamma None if voters have no such value.
      criterion_: its value over the grid ``[r, g, k]``; NaN if there was nothing to choose and ``folds`` is None.
      choice_, sweep_: the chosen point and all figures of the grid, a `pvmincq_jax.Choice` and a `pvmincq_jax.Sweep`.
      margin_, margin_fraction_, mu_max_, c_bound_, probability_scale_, kkt_residual_, weights_, centers_, model_,
        n_features_in_: as in `MinCqClassifier`, on the points that the vote learnt from.

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

    criterion: str | Criterion | None = None
    centers: CenterKind = "target"
    folds: int | None = None

    def _fit(self, task: Domains) -> validate.ValidatedFit:
        criterion = label_criterion if self.criterion is None else self.criterion
        if isinstance(criterion, str):
            if criterion not in _CRITERIA:
                raise ValueError(f"criterion must be one of {', '.join(_CRITERIA)}, or a function; it is {criterion!r}")
            criterion = _CRITERIA[criterion]
        fit = validate.fit_mincq_validated if task.single else validate.fit_validated
        return self._call(fit, task, criterion)


@fields_are_parameters
class PVTransportClassifier(AdaptedClassifier):
    """A majority vote for a target domain without labels, learnt on source points that move there. Not in the paper.

    Source points move to the mean of the target points that they are matched with, keep their labels, and MinCq learns
    there: `pvmincq_jax.fit_transport_validated`, for labels of any kind, which stands larger shifts than the paper's
    form. Radius, margin and gamma that are not given are chosen without target labels, and the best part of the grid
    votes. Samples, domains and labels are as in `PVMinCqClassifier`, and one domain, too: it has the vote that
    `PVMinCqClassifier` has there, and what is said of maps and the criterion plays no part.

    What changes with the size of the samples: at most ``most_voters`` kernels vote, so that up to 300 points each has
    its own; from 750 points on matchings are averaged over fewer draws; criteria ask some 1 000 target points for their
    neighbours; and of more than ``most_points`` of a domain a random part is matched, and the votes are learnt on all.

    Args:
      radius: of the matching; a number, a list to choose from, or None: see `pvmincq_jax.transport_sweep`.
      margin, margin_unit, voters, class_weight, keep_sweep: as in `MinCqClassifier`.
      gamma, radius_unit, most_points, metric, random_state: as in `PVMinCqClassifier`.
      draws: how many random maximum matchings are averaged. None for 64, and fewer from 750 points on: down to a
        quarter at four times as many.
      criterion: what is minimised over the grid: None for `pvmincq_jax.transport_criterion`, or a function from a
        `pvmincq_jax.Sweep` to scores.
      most_voters: how many kernels at most, on the moved points; see `pvmincq_jax.pv_mincq`.
      match_moments: whether the grid also holds maps that bring each feature to the target's mean and deviation first,
        which suits domains that differ in units, offsets or size, class by class alike; None: unless radii are given.
      equal_sizes: whether the smaller sample is repeated to the size of the larger one.
      ratio: the share of ``classes_[1]`` in the target, or with more than two classes the shares of all ``classes_``;
        "source" if they are those of the source; or "estimated", see `pvmincq_jax.fit_transport_validated`.
      top_fraction: of the grid that votes, see `pvmincq_jax.committee`; None for the best point alone.

    Attributes:
      adapted_: whether the best point of the grid adapts; False with one domain, or where the source as it is was
        judged best, or explains the target.
      shift_: what has changed, a `pvmincq_jax.Shift`: a ``sentence``, the class shares and p-value in ``label_shift``,
        the subspace in ``map``. None with one domain, and where criterion, radius, metric or match_moments were given.
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

    criterion: Criterion | None = None
    match_moments: bool | None = None
    equal_sizes: bool = True
    ratio: validate.Ratio = "source"
    top_fraction: float | None = TOP_FRACTION

    def _fit(self, task: Domains) -> validate.ValidatedFit:
        if task.single:
            return self._call(validate.fit_mincq_validated, task, label_criterion)
        criterion = transport_criterion if self.criterion is None else self.criterion
        if not callable(criterion):
            raise ValueError(f"criterion must be None or a function of a Sweep; it is {criterion!r}")
        return self._call(validate.fit_transport_validated, task, criterion)
