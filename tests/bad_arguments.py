"""A small valid call of every public function, and what its arguments may not be."""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from sklearn.neighbors import KNeighborsClassifier

import pvmincq_jax as pvm
from pvmincq_jax.estimators import MinCqClassifier, PVMinCqClassifier, PVTransportClassifier
from pvmincq_jax.matching.graph import radius_graph
from pvmincq_jax.scorers import ReverseValidationScorer, RsPvScorer

SOURCE, LABELS, TARGET = pvm.datasets.moons_task("30", 0, per_class=6, test_size=2)[:3]
SIZE = len(LABELS)
TASK = {"source": SOURCE, "source_labels": LABELS, "target": TARGET}
PAIR = {"source": SOURCE, "target": TARGET}
VOTES = np.tanh(np.column_stack([LABELS + SOURCE[:, 0], LABELS - SOURCE[:, 1], SOURCE[:, 0]]))
WEIGHTS, ONES = np.array([0.5, 0.3, -0.2]), np.ones(SIZE)
SAMPLE = {"votes": VOTES, "labels": LABELS, "weights": WEIGHTS, "sample_weights": ONES}
POINT = {"radius": 0.9, "margin": 0.2, "gamma": 2.0}
GRID: dict[str, Any] = {"radii": [0.9], "margins": [0.2], "gammas": [2.0]}
UNITS = {"radius_unit": "absolute", "margin_unit": "fraction"}
HOW = {"draws": 2, "seed": 0, "metric": "euclidean"}
WORK = {"mesh": None, "progress": None}
VOTERS = {"voters": "rbf", "most_voters": 300}
OPTIONS = UNITS | HOW | WORK | VOTERS | {"solver": "interior_point", "source_weights": ONES}
RATES = {"gibbs_risk": 0.2, "disagreement": 0.3, "m": 1000, "kl": 2.0, "delta": 0.05}
VIEWS = {"source_views": [SOURCE, SOURCE[:, :1]], "source_labels": LABELS, "target_views": [TARGET, TARGET[:, :1]]}
VIEW_GRID = {"levels": [0.0], "margins": [0.2], "folds": 2, "draws": 2, "seed": 0, "margin_unit": "fraction", **WORK}
BOUND = {"bound": "seeger", "prior": np.full(3, 1 / 3), "delta": 0.05, "steps": 2, "learning_rate": 0.2}


def on_both_domains(classifier: type, **parameters: Any) -> Any:
    """A classifier, fitted with these parameters and weights."""
    weights = parameters.pop("sample_weight")
    return classifier(**parameters).fit_domains(SOURCE, LABELS, TARGET, sample_weight=weights)


def on_one_domain(**parameters: Any) -> Any:
    """The classifier of one domain, fitted."""
    weights = parameters.pop("sample_weight")
    return MinCqClassifier(**parameters).fit(SOURCE, LABELS, sample_weight=weights)


def scored(scorer: type, sample_domain: Any, **parameters: Any) -> float:
    """A score of a neighbour classifier."""
    points, labels = np.concatenate([SOURCE, TARGET]), np.concatenate([LABELS, LABELS])
    estimator = KNeighborsClassifier(1).fit(SOURCE, LABELS)
    return scorer(**parameters)(estimator, points, labels, sample_domain=sample_domain)


@functools.cache
def records() -> dict[str, Any]:
    """What functions of earlier results are given."""
    figures = pvm.sweep(**TASK, **GRID, folds=2)
    return {
        "graph": radius_graph(SOURCE, TARGET, 0.9),
        "transport": pvm.pv_transport(SOURCE, TARGET, 0.9, draws=2),
        "sweep": figures,
        "moved": pvm.transport_sweep(**TASK, **GRID, draws=2),
        "model": pvm.model_at(figures, (0, 0, 0)),
        "scores": pvm.rs_pv(figures),
    }


def calls(path: str) -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """Every public function with its arguments, all of them by name; models are written to and read from the path."""
    known = records()
    pvm.save_model(known["model"], path)
    figures = {"sweep": known["sweep"]}
    parameters: Any = {**POINT, **UNITS, "voters": "rbf", "most_voters": 300, "class_weight": None, "random_state": 0}
    parameters |= {"sample_weight": ONES, "keep_sweep": True}
    alone = {name: value for name, value in parameters.items() if name not in ("radius", "radius_unit")}
    adapted = parameters | {"draws": 2, "most_points": 2000, "metric": "euclidean", "criterion": None}
    domains = {"sample_domain": np.repeat([1, -2], SIZE)}
    moves = {"match_moments": False, "equal_sizes": True, "ratio": 0.5}
    some_calls: dict[str, Any] = {
        "classifier_votes": {"outputs": VOTES, "bound": 1.0},
        "default_gammas": {"target": TARGET},
        "rbf_votes": {"x": SOURCE, "centers": TARGET, "gamma": 2.0},
        "stump_thresholds": {"x": SOURCE, "per_feature": 2},
        "stump_votes": {"x": SOURCE, "features": np.array([0, 1]), "thresholds": np.array([0.0, 0.5])},
        "c_bound": SAMPLE,
        "domain_disagreement": {
            "source_votes": VOTES, "target_votes": VOTES, "weights": WEIGHTS, "source_sample_weights": ONES,
            "target_sample_weights": ONES,
        },
        "first_moment": SAMPLE,
        "second_moment": {"votes": VOTES, "weights": WEIGHTS, "sample_weights": ONES},
        "gibbs_risk": SAMPLE,
        "vote_risk": SAMPLE,
        "vote_margin": {"votes": VOTES, "weights": WEIGHTS},
        "vote_factor": {"votes": VOTES, "sample_weights": ONES, "tolerance": 1e-6, "rank": None},
        "max_margin": {"votes": VOTES, "labels": LABELS, "sample_weights": ONES, "voter_mask": np.ones(3, bool)},
        "solve_box_qp": {
            **{"factor": VOTES, "normal": VOTES.T @ LABELS, "level": 0.5, "bound": 1.0},
            **{"start": WEIGHTS, "solver": "interior_point"},
        },
        "mincq": {
            "votes": VOTES, "labels": LABELS, "margin": 0.1, "sample_weights": ONES, "voter_mask": np.ones(3, bool),
            "solver": "interior_point", "factor": None, "rank": 3,
        },
        "match": {**PAIR, "radius": 0.9, "seed": 0, "metric": "euclidean"},
        "perturbed_variation": {**PAIR, "radius": 0.9, "metric": "euclidean"},
        "draw_matchings": {"graph": known["graph"], "draws": 2, "seed": 0},
        "pv_curve": {**PAIR, "metric": "euclidean"},
        "bottleneck_radius": {**PAIR, "pv": 0.0, "metric": "euclidean"},
        "grid_radii": {**PAIR, "radii": [0.5], "unit": "pv", "metric": "euclidean"},
        "carry_labels": {"draws": pvm.draw_matchings(known["graph"], 2), "source_labels": LABELS},
        "self_label": {**TASK, "radius": 0.9, **HOW},
        "nn_self_label": {**TASK, "k": 2, "metric": "euclidean"},
        "shared_points": {**PAIR, "radii": [0.9], **HOW},
        "soft_matching": {**PAIR, "radius": 0.9, "temperature": 0.1, "iterations": 5},
        "soft_pv": {**PAIR, "radius": 0.9, "temperature": 0.1, "iterations": 5},
        "sinkhorn_matching": {"affinity": np.ones((SIZE, SIZE)), "pairs": 3.0, "iterations": 5},
        "sinkhorn_transport": {**PAIR, "radius": 0.9, "softness": 0.1, "iterations": 5},
        "decision": {"model": known["model"], "x": TARGET},
        "predict": {"model": known["model"], "x": TARGET},
        "save_model": {"model": known["model"], "path": path},
        "load_model": {"path": path, "voters": None},
        "model_at": {**figures, "index": (0, 0, 0)},
        "values_at": {**figures, "x": TARGET},
        "pv_mincq": {**TASK, **POINT, "centers": "target", **OPTIONS},
        "sweep": {**TASK, **GRID, "folds": 2, "centers": "target", **OPTIONS},
        "pv_transport": {**PAIR, "radius": 0.9, **HOW, "source_labels": LABELS},
        "move": {"transport": known["transport"], "x": SOURCE, "neighbours": 2},
        "identity_transport": {"source": SOURCE, "moved": SOURCE, "weights": ONES},
        "match_moments": {**PAIR, "rows": np.arange(4)},
        "pv_transport_mincq": {**TASK, **POINT, "identity": False, **OPTIONS, **moves},
        "transport_sweep": {
            **TASK, **GRID, **OPTIONS, **moves, "include_identity": False, "identity_weights": ONES,
        },
        "choose": {**figures, "scores": known["scores"]},
        "committee": {**figures, "scores": known["scores"], "top_fraction": 0.5},
        "label_criterion": figures,
        "transport_criterion": {"sweep": known["moved"], "neighbours": 2},
        "rs": figures,
        "rs_pv": figures,
        "rs_pv_cbound": figures,
        "rs_pv_risk": figures,
        "neighbour_disagreement": {**figures, "neighbours": 2},
        "class_ratio_gap": figures,
        "fit_validated": {
            **TASK, **GRID, "folds": 2, "centers": "target", **OPTIONS, "criterion": pvm.rs_pv, "most_points": 2000,
        },
        "fit_transport_validated": {
            **TASK, **GRID, **OPTIONS, **moves, "include_identity": False, "identity_weights": None,
            "criterion": pvm.transport_criterion, "most_points": 2000, "top_fraction": None,
        },
        "fit_mincq_validated": {
            "points": SOURCE, "labels": LABELS, "margins": [0.2], "gammas": [2.0], "folds": 2, "seed": 0, **VOTERS,
            "margin_unit": "fraction", "sample_weights": ONES, "criterion": pvm.rs,
        },
        "adapt_votes": {
            "votes": VOTES, "self_labels": pvm.self_label(**TASK, radius=0.9), "margin": 0.1,
            "margin_unit": "fraction", "bound": 1.0,
        },
        "pv_mincq_views": {
            **VIEWS, "radius": 0.9, "margin": 0.2, "gammas": [2.0, 2.0], "matching": "joint", "draws": 2, "seed": 0,
            "margin_unit": "fraction", **WORK,
        },
        "fit_views_validated": {
            **VIEWS, "matching": "joint", "criterion": pvm.rs_pv, "multiples": [2.0], **VIEW_GRID,
        },
        "fit_votes_validated": {
            **TASK, "source_votes": VOTES, "target_votes": VOTES, "criterion": pvm.rs_pv, **VIEW_GRID,
        },
        "label_shift": {**TASK, "draws": 2, "seed": 0},
        "detect_shift": {**TASK, "seed": 0},
        "learn_map": {
            **TASK, "form": "low_rank", "rank": 1, "seed": 0, "radius": 0.1, "gamma": 20.0, "temperature": 0.1,
            "pv_weight": 3.0, "eps_h_weight": 0.0, "learning_rate": 0.1, "steps": 2, "starts": 1, "iterations": 2,
        },
        "apply_map": {"linear_map": pvm.LinearMap(np.eye(2)), "x": SOURCE},
        "theorem1": {
            "source_votes": VOTES, "source_labels": LABELS, "target_votes": VOTES, "weights": WEIGHTS,
            "source_sample_weights": ONES, "target_sample_weights": ONES, "target_labels": LABELS,
        },
        "corollary1": {**SAMPLE, "self_labels": LABELS, "as_printed": False},
        "joint_error": SAMPLE,
        "eps_h": {"source_votes": VOTES, "target_votes": VOTES, "pair_weights": ONES},
        "gibbs_deviation_bound": {"eps_h": 0.5, "weights": WEIGHTS},
        "disagreement_deviation_bound": {
            "eps_h": 0.5, "target_votes": VOTES, "weights": WEIGHTS, "sample_weights": ONES,
        },
        "pac_bound_0": {name: value for name, value in RATES.items() if name != "disagreement"},
        "pac_bound_1": RATES | {"disagreement_m": 100},
        "pac_bound_2": RATES,
        "tandem_bound": RATES,
        "disagreement_bound": RATES | {"disagreement_m": 100},
        "c_tandem_bound": RATES,
        "chebyshev_cantelli_bound": RATES | {"mu": 0.1},
        "self_bound": {"votes": VOTES, "labels": LABELS, "unlabelled_votes": VOTES, **BOUND},
        "target_bound": {
            "votes": VOTES, "self_labels": LABELS, "unlabelled_votes": VOTES, "label_gap": 0.1, **BOUND,
        },
        "mincq_path": {"votes": VOTES, "labels": LABELS, "margins": [0.1], "bound": "joint", "delta": 0.05},
    }  # fmt: skip
    found = {name: (getattr(pvm, name), arguments) for name, arguments in some_calls.items()}
    found["MinCqClassifier"] = on_one_domain, alone | {"folds": 2}
    found["PVMinCqClassifier"] = (
        functools.partial(on_both_domains, PVMinCqClassifier),
        adapted | {"folds": 2, "centers": "target"},
    )
    found["PVTransportClassifier"] = (
        functools.partial(on_both_domains, PVTransportClassifier),
        adapted | moves | {"top_fraction": None},
    )
    found["RsPvScorer"] = (
        functools.partial(scored, RsPvScorer),
        domains | {"radius": 0.9, "space": "input", "metric": "euclidean"},
    )
    found["ReverseValidationScorer"] = (
        functools.partial(scored, ReverseValidationScorer),
        domains | {"folds": 2, "random_state": 0},
    )
    return found


class Bad(NamedTuple):
    """A value in an argument's place."""

    kind: str
    value: Any


def bad_values(valid: Any) -> Iterator[Bad]:
    """Values that are refused by most arguments, and changes of a valid one."""
    yield Bad("None", None)
    yield Bad("text", "text")
    yield Bad("NaN", float("nan"))
    yield Bad("infinite", float("inf"))
    yield Bad("complex", 1j)
    yield Bad("negative", -1)
    yield Bad("huge", 10**30)
    yield Bad("empty", np.zeros(0))
    yield Bad("object", object())
    yield Bad("dict", {})
    yield Bad("vector", np.full(2, 0.5))
    yield Bad("ragged", [[1.0], [1.0, 2.0]])
    yield Bad("rank 3", np.ones((2, 2, 2)))
    yield Bad("complex on a device", jnp.full(np.shape(valid) if isinstance(valid, np.ndarray) else (), 1j))
    if isinstance(valid, np.ndarray) and valid.dtype == float:
        for kind, entry in ("NaN", np.nan), ("infinity", np.inf), ("complex", 1j), ("text", "text"):
            changed = valid.astype(type(entry) if kind == "complex" else object if kind == "text" else float)
            changed.flat[0] = entry
            yield Bad(f"{kind} inside", changed)
        yield Bad(
            "NaN on a device",
            jnp.asarray(np.where(np.arange(valid.size) == 0, np.nan, valid.ravel())).reshape(valid.shape),
        )
        yield Bad("a row less", valid[:-1])
        yield Bad("one axis more", valid[..., None])
        yield Bad("text for numbers", valid.astype(str))
