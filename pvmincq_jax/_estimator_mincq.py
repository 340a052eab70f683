"""MinCq as a scikit-learn classifier; see `pvmincq_jax.estimators`."""

from typing import Any, Literal

import numpy as np

from pvmincq_jax._checks import check_count
from pvmincq_jax._estimator_engine import Votes, deal, fit_grid, own_labels
from pvmincq_jax._sklearn import Given, VoteClassifier, chosen, gamma_list, margin_list, seed_of
from pvmincq_jax._types import MarginUnit
from pvmincq_jax.adaptation.label import absolute_margin
from pvmincq_jax.baselines._form import rbf_kernel
from pvmincq_jax.voting.voters import stump_thresholds

__all__: list[str] = []


class MinCqClassifier(VoteClassifier):
    """The majority vote of least C-bound, on one domain (Algorithm 1).

    Args:
      voters: "rbf" for Gaussian kernels exp(-gamma |x - c|^2) on the training points, or "stumps" for decision stumps.
      gamma: of the kernels; a number, a list to choose from, or None for 1/2, 2 and 8 over the median squared distance.
      margin: mu; a number, a list to choose from, or None for a list.
      margin_unit: "fraction" of the largest margin that the sample allows, in (0, 1], or "absolute".
      stumps: thresholds per feature.
      folds: of the cross-validation that chooses what is not given; fewer if the smaller class has fewer points. Ties
        go to the smallest gamma, then to the largest margin.
      random_state: of the folds: a seed, a `numpy.random.RandomState`, or None.

    Attributes:
      classes_: the two classes.
      n_features_in_: d; and ``feature_names_in_`` where the features have names.
      weights_: signed weights of the voters ``[n]``; the paper's Q is (weights_ + 1/n) / 2.
      centers_: of the kernels ``[n, d]``, or None.
      features_, thresholds_: of the stumps ``[n]``, or None.
      gamma_: chosen or given; None for stumps.
      margin_: mu, absolute; ``margin_fraction_`` is mu / mu_max.
      mu_max_: the largest margin that the sample allows.
      c_bound_: the C-bound on the training sample.
      kkt_residual_: how far the weights are from optimal, relative.
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
        voters: Literal["rbf", "stumps"] = "rbf",
        *,
        gamma: Given = None,
        margin: Given = None,
        margin_unit: MarginUnit = "fraction",
        stumps: int = 10,
        folds: int = 5,
        random_state: Any = 0,
    ) -> None:
        """Keeps the parameters; `fit` checks them."""
        self.voters = voters
        self.gamma = gamma
        self.margin = margin
        self.margin_unit = margin_unit
        self.stumps = stumps
        self.folds = folds
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> "MinCqClassifier":
        """Learns the vote.

        Args:
          X: points ``[m, d]``, dense.
          y: labels ``[m]`` of two classes.

        Returns:
          The classifier itself.
        """
        task = self._one_domain(X, y)
        if self.voters not in ("rbf", "stumps"):
            raise ValueError(f"voters must be 'rbf' or 'stumps'; it is {self.voters!r}")
        margins = margin_list(self.margin, self.margin_unit)
        kernels = self.voters == "rbf"
        gammas = gamma_list(self.gamma, task.source) if kernels else np.array([np.nan])
        folds = check_count("folds", self.folds, 2) if margins.size * gammas.size > 1 else 0
        learning = deal(task.source, task.labels, folds, seed_of(self.random_state))
        self.centers_ = task.source if kernels else None
        placed: Any = (None, None) if kernels else stump_thresholds(task.source, self.stumps)
        self.features_: Any = placed[0]
        self.thresholds_: Any = placed[1]
        # A kernel on a point that is left out is left out with it; stumps know the features alone.
        masks = [[kept if kernels else np.full(self.features_.size, True)] for kept in learning]

        def votes_at(gamma: float) -> Votes:
            votes = rbf_kernel(task.source, task.source, gamma) if kernels else self._votes(task.source)
            return votes, votes

        found = own_labels(task.labels, learning)
        fit = fit_grid(
            found, masks, learning, task.labels, task.target, np.zeros(1), gammas, votes_at, margins, self.margin_unit
        )
        choice = chosen(fit.sweep, "rs", fit.mu_max)
        _, g, k = choice.grid_index
        self.weights_ = fit.weights[0, g, k]
        self.mu_max_ = float(fit.mu_max[0, g])
        self.margin_ = absolute_margin(choice.margin, self.mu_max_, choice.margin_unit)
        self.margin_fraction_ = self.margin_ / self.mu_max_
        self.c_bound_ = float(fit.sweep.c_bound[0, g, k])
        self.kkt_residual_ = float(fit.kkt_residual[0, g, k])
        self.gamma_: Any = choice.gamma if kernels else None
        self.cv_risk_ = choice.scores[0]
        self.gammas_, self.margins_ = gammas if kernels else None, margins
        return self

    def _votes(self, X: np.ndarray) -> np.ndarray:
        if self.centers_ is not None:
            return rbf_kernel(X, self.centers_, self.gamma_)
        return np.where(X[:, self.features_] > self.thresholds_, 1.0, -1.0)
