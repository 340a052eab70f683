"""MinCq as a scikit-learn classifier, on one domain; `pvmincq_jax.estimators` hands it on."""

from typing import Any

import numpy as np

from pvmincq_jax._sklearn import Given, VoteClassifier
from pvmincq_jax._types import MarginUnit
from pvmincq_jax.adaptation.seats import MOST_VOTERS
from pvmincq_jax.voting.families import VoterKind

__all__: list[str] = []


class MinCqClassifier(VoteClassifier):
    """The majority vote of least C-bound, on one domain (Algorithm 1).

    Args:
      voters: "rbf" for Gaussian kernels exp(-gamma |x - c|^2) on the training points, "stumps" for decision stumps, a
        list of functions from points to values in [-1, 1], a family such as `pvmincq_jax.StumpVoters`, several, or a
        function from a value to one; see `pvmincq_jax.Voters`.
      gamma: of the kernels; a number, a list to choose from, or None for 1/2, 2 and 8 over the median squared distance.
        Of other voters, the values that families are made of, see `pvmincq_jax.sweep`.
      margin: mu; a number, a list to choose from, or None for a list.
      margin_unit: "fraction" of the largest margin that the sample allows, in (0, 1], or "absolute".
      most_voters: how many kernels at most; see `pvmincq_jax.pv_mincq`.
      folds: of the cross-validation that chooses what is not given; fewer if the smallest class has fewer points. None
        for 5, or 2 with more than two classes. Ties go to the smallest gamma, then to the largest margin.
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
      kkt_residual_: how far the weights are from optimal, relative.
      choice_, sweep_: the chosen point and all figures, a `pvmincq_jax.Choice` and a `pvmincq_jax.Sweep`, or one
        sweep for each class, of how far it is ahead of the best other one; the sweep is None without ``keep_sweep``.
      cv_risk_: mean risk on the folds left out ``[g, k]``, NaN if there was nothing to choose.
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

    def __init__(
        self,
        voters: VoterKind = "rbf",
        *,
        gamma: Given = None,
        margin: Given = None,
        margin_unit: MarginUnit = "fraction",
        most_voters: int = MOST_VOTERS,
        folds: int | None = None,
        random_state: Any = 0,
        keep_sweep: bool = True,
    ) -> None:
        """Keeps the parameters; `fit` checks them."""
        self.voters = voters
        self.gamma = gamma
        self.margin = margin
        self.margin_unit = margin_unit
        self.most_voters = most_voters
        self.folds = folds
        self.random_state = random_state
        self.keep_sweep = keep_sweep

    def fit(self, X: Any, y: Any) -> "MinCqClassifier":
        """Learns the vote.

        Args:
          X: points ``[m, d]``, dense.
          y: labels ``[m]`` of two classes or more.

        Returns: the classifier itself.
        """
        task = self._one_domain(X, y)
        model, choice, sweep = self._own(task, "rs", self.folds)
        self._learnt(model, choice, sweep)
        self.cv_risk_ = self.choice_.scores[0]
        grid = sweep if task.labels.ndim == 1 else sweep[0]
        self.gammas_, self.margins_ = None if np.isnan(grid.gammas[0]) else grid.gammas, grid.margins
        return self
