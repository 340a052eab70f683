"""What the classifiers of two domains share: how domains come in, and what is named after a fit."""

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pvmincq_jax._sklearn import Domains, Given, VoteClassifier, listed, number, signs, source_rows, validate_data
from pvmincq_jax._types import RadiusUnit
from pvmincq_jax.adaptation.choice import Choice
from pvmincq_jax.adaptation.model import PVMinCq
from pvmincq_jax.matching.curve import grid_radii
from pvmincq_jax.matching.space import Metric

__all__: list[str] = []


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
    metric: Metric

    # Metadata routing: pipelines and searches hand the domains on to `fit` without being asked.
    __metadata_request__fit = {"sample_domain": True}  # noqa: RUF012

    def fit(self, X: Any, y: Any, sample_domain: Any = None) -> Any:
        """Learns the vote.

        Args:
          X: points of both domains ``[m, d]``, dense.
          y: labels ``[m]``; those of target rows are not read.
          sample_domain: 0 or above for source rows, below 0 for target rows ``[m]``; None if there is one domain.

        Returns: the classifier itself.
        """
        if sample_domain is None:
            task = self._one_domain(X, y)
            self._warn_of_masks()
            return self._fit(task)
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

    def fit_domains(self, Xs: Any, ys: Any, Xt: Any) -> Any:
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

    def _fit(self, task: Domains) -> Any:
        raise NotImplementedError

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

    def _named(self, task: Domains, model: PVMinCq, choice: Choice, sweep: Any, *, adapted: bool = True) -> Any:
        """Names the results."""
        self._learnt(model, choice, sweep)
        self.adapted_ = adapted and not task.single
        self.criterion_ = choice.scores
        self.source_, self.source_labels_, self.target_ = task.source, task.labels, task.target
        self.radius_, self.pv_, self.pairs_ = number(model.radius), float(model.pv), model.pairs
        self.self_labels_, self.self_label_weights_ = np.asarray(model.labels), np.asarray(model.label_weights)
        return self

    def _radii(self, task: Domains, default: Sequence[float], default_unit: RadiusUnit) -> np.ndarray:
        """Absolute radii, increasing; 0, where the samples share points, is the smallest number above it."""
        unit = default_unit if self.radius is None else self.radius_unit
        values = listed("radius", self.radius, lambda: default)
        if unit != "pv" and np.any(values == 0):
            raise ValueError(f"radius must be above 0; it is {self.radius!r}")
        radii = grid_radii(task.source, task.target, values, unit, self.metric)
        return np.unique(np.maximum(radii, np.finfo(float).tiny))
