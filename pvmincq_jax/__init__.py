"""PV-MinCq in JAX: weighted majority votes of least C-bound, adapted to a domain without labels.

A start, after ``import pvmincq_jax as pvm``: labelled source points, target points without labels, a vote for these.

    task = pvm.datasets.moons_task("40", seed=7)
    fit = pvm.fit_validated(task.source, task.source_labels, task.target)
    labels = pvm.predict(fit.model, task.test)

Learn
    `fit_validated` chooses radius, margin and gamma without target labels; `pv_mincq` (Algorithm 3) is told them.
    `fit_transport_validated` and `pv_transport_mincq` move source points in place of labels, for larger shifts.
    `mincq` (Algorithm 1) learns from votes and labels, under jit, vmap and grad.
    `decision`, `predict`, `save_model` and `load_model` serve every model.
Measure
    `match` and `perturbed_variation` (Algorithm 2), `pv_curve`, `bottleneck_radius`, `self_label` (section 3.2).
    `c_bound`, `gibbs_risk`, `vote_risk`, `domain_disagreement` (section 2), of any votes and weights.
Choose
    `sweep` and `transport_sweep` solve a grid. A criterion scores it: `rs_pv` (section 3.4), `label_criterion`.
    `choose` takes the best point, and `model_at` its vote.
Bound
    `theorem1`, `corollary1`, `eps_h`, `gibbs_deviation_bound`, `disagreement_deviation_bound` (section 3).
    `pac_bound_0`, `pac_bound_1`, `pac_bound_2`, `tandem_bound` and their kin, of what a sample says of a vote.
    `self_bound`, `mincq_path` and `target_bound` minimise such a bound, on the sample or on the target.
Plot
    `pvmincq_jax.plots`, of the scikit-learn classifiers in `pvmincq_jax.estimators`.

Labels are -1 and +1, samples ``[m, d]``, votes ``[m, n]`` with a column for each voter; results are NamedTuples, hence
pytrees. Which equation is in which file: see the rooms `pvmincq_jax.voting` (section 2), `pvmincq_jax.matching`
(Algorithm 2), `pvmincq_jax.adaptation` (Algorithm 3, sections 3.4 and 5) and `pvmincq_jax.bounds` (section 3). To be
imported by themselves: `pvmincq_jax.estimators`, `pvmincq_jax.scorers`, `pvmincq_jax.plots`, and
`pvmincq_jax.baselines`, the methods that the paper compares with.
"""

from pvmincq_jax import datasets
from pvmincq_jax._types import Status
from pvmincq_jax.voting.voters import classifier_votes, default_gammas, rbf_votes, stump_thresholds, stump_votes
from pvmincq_jax.voting.families import FunctionVoters, GaussianVoters, OutputVoters, StumpVoters, ViewVoters, Voters
from pvmincq_jax.voting.cbound import (
    CBound,
    c_bound,
    c_bound_terms,
    domain_disagreement,
    expected_disagreement,
    first_moment,
    gibbs_risk,
    second_moment,
    vote_margin,
    vote_risk,
)
from pvmincq_jax.voting.factor import VoteFactor, vote_factor
from pvmincq_jax.voting.mincq import MinCqSolution, max_margin, mincq
from pvmincq_jax.matching.space import Metric, Precomputed
from pvmincq_jax.matching.graph import RadiusGraph, radius_graph
from pvmincq_jax.matching.matching import (
    ExpectedMatching,
    Matching,
    MatchingDraws,
    draw_matchings,
    match,
    perturbed_variation,
)
from pvmincq_jax.matching.curve import PVCurve, bottleneck_radius, grid_radii, pv_curve
from pvmincq_jax.matching.selflabel import SelfLabels, carry_labels, nn_self_label, self_label
from pvmincq_jax.matching.spread import MatchedSpread, matched_spread
from pvmincq_jax.matching.soft import (
    SinkhornMatching,
    SinkhornTransport,
    SoftMatching,
    sinkhorn_matching,
    sinkhorn_transport,
    soft_eps_h,
    soft_matching,
    soft_pv,
)
from pvmincq_jax.adaptation.model import PVMinCq, decision, load_model, predict, save_model
from pvmincq_jax.adaptation.learn import model_at, values_at
from pvmincq_jax.adaptation.label import pv_mincq
from pvmincq_jax.adaptation.labelled import Sweep
from pvmincq_jax.adaptation.sweeps import sweep
from pvmincq_jax.adaptation.transport import Transport, barycentres, move, pv_transport, stay
from pvmincq_jax.adaptation.moves import own_scale
from pvmincq_jax.adaptation.moved_grid import TransportSweep
from pvmincq_jax.adaptation.transport_sweeps import pv_transport_mincq, transport_sweep
from pvmincq_jax.adaptation.choice import Choice, choose
from pvmincq_jax.adaptation.criteria import (
    Criterion,
    class_ratio_gap,
    label_criterion,
    neighbour_disagreement,
    normalised_cut,
    rs,
    rs_pv,
    rs_pv_cbound,
    rs_pv_risk,
)
from pvmincq_jax.adaptation.moved_criteria import (
    at_rest,
    class_distance,
    map_price,
    moved_risk,
    swap_excess,
    transport_criterion,
)
from pvmincq_jax.adaptation.committee import committee
from pvmincq_jax.adaptation.ratio import RatioScan, confusion_ratio, estimate_ratio
from pvmincq_jax.adaptation.validate import ValidatedFit, ValidatedTransport, fit_transport_validated, fit_validated
from pvmincq_jax.adaptation.resampling import cross_validation, reverse_validation, rs_pv_validation
from pvmincq_jax.adaptation.views import adapt_votes, pv_mincq_views, stack_views, view_margins, view_scales, view_votes
from pvmincq_jax.adaptation.view_validation import ValidatedVotes, fit_views_validated, fit_votes_validated
from pvmincq_jax.adaptation.shift import LabelShift, Shift, contradicted, detect_shift, label_shift
from pvmincq_jax.adaptation.distance import LearnedMap, LinearMap, apply_map, learn_map, own_c_bound
from pvmincq_jax.adaptation.points import SharedPoints, class_rows, even_rows, shared_points
from pvmincq_jax.bounds.domain import Theorem1, corollary1, joint_error, self_label_gap, theorem1
from pvmincq_jax.bounds.deviation import (
    DisagreementDeviation,
    Smoothness,
    disagreement_deviation_bound,
    disagreement_deviation_terms,
    eps_h,
    eps_h_of_radius,
    eps_h_within,
    gibbs_deviation_bound,
    moved_disagreement_bound,
    moved_gibbs_bound,
    moved_vote_bound,
    rbf_smoothness,
)
from pvmincq_jax.bounds.kl import binary_kl, kl_inverse_lower, kl_inverse_upper, pac_bayes_xi
from pvmincq_jax.bounds.pac_bayes import (
    c_bound_mcallester,
    c_tandem_bound,
    chebyshev_cantelli_bound,
    disagreement_bound,
    pac_bayes_disagreement,
    pac_bayes_gibbs_risk,
    pac_bayes_joint_error,
    pac_bound_0,
    pac_bound_1,
    pac_bound_2,
    tandem_bound,
)
from pvmincq_jax.bounds.self_bounds import (
    MinCqPath,
    SelfBound,
    mincq_path,
    quasi_uniform_kl,
    self_bound,
    target_bound,
)

__version__ = "0.3.0"
# For type checkers, help() and `import *`; in the order of the imports, a paragraph for each room.
__all__ = [
    "datasets", "Status",
    "classifier_votes", "default_gammas", "rbf_votes", "stump_thresholds", "stump_votes", "FunctionVoters",
    "GaussianVoters", "OutputVoters", "StumpVoters", "ViewVoters", "Voters", "CBound", "c_bound", "c_bound_terms",
    "domain_disagreement", "expected_disagreement", "first_moment", "gibbs_risk", "second_moment", "vote_margin",
    "vote_risk", "VoteFactor", "vote_factor", "MinCqSolution", "max_margin", "mincq",
    "Metric", "Precomputed", "RadiusGraph", "radius_graph", "ExpectedMatching", "Matching", "MatchingDraws",
    "draw_matchings", "match", "perturbed_variation", "PVCurve", "bottleneck_radius", "grid_radii", "pv_curve",
    "SelfLabels", "carry_labels", "nn_self_label", "self_label", "MatchedSpread", "matched_spread", "SoftMatching",
    "soft_eps_h", "soft_matching", "soft_pv", "SinkhornMatching", "SinkhornTransport", "sinkhorn_matching",
    "sinkhorn_transport",
    "PVMinCq", "decision", "load_model", "model_at", "predict", "save_model", "values_at", "pv_mincq", "Sweep",
    "sweep", "Transport", "barycentres", "move", "pv_transport", "stay", "own_scale", "TransportSweep",
    "pv_transport_mincq", "transport_sweep", "Choice", "Criterion", "choose", "class_ratio_gap", "label_criterion",
    "neighbour_disagreement", "normalised_cut", "rs", "rs_pv", "rs_pv_cbound", "rs_pv_risk", "class_distance",
    "map_price", "moved_risk", "swap_excess", "transport_criterion", "at_rest", "committee", "RatioScan",
    "confusion_ratio", "estimate_ratio", "ValidatedFit", "ValidatedTransport", "fit_transport_validated",
    "fit_validated", "cross_validation", "reverse_validation", "rs_pv_validation", "adapt_votes", "pv_mincq_views",
    "stack_views", "view_margins", "view_scales", "view_votes", "ValidatedVotes", "fit_views_validated",
    "fit_votes_validated",
    "LabelShift", "Shift", "contradicted", "detect_shift", "label_shift", "LearnedMap", "LinearMap", "apply_map",
    "learn_map", "own_c_bound", "SharedPoints", "class_rows", "even_rows", "shared_points",
    "Theorem1", "corollary1", "joint_error", "self_label_gap", "theorem1", "DisagreementDeviation",
    "disagreement_deviation_bound", "disagreement_deviation_terms", "eps_h", "eps_h_within", "gibbs_deviation_bound",
    "Smoothness", "eps_h_of_radius", "moved_disagreement_bound", "moved_gibbs_bound", "moved_vote_bound",
    "rbf_smoothness", "binary_kl", "kl_inverse_lower", "kl_inverse_upper", "pac_bayes_disagreement",
    "pac_bayes_gibbs_risk", "pac_bayes_joint_error", "pac_bayes_xi", "pac_bound_0", "pac_bound_1", "pac_bound_2",
    "c_bound_mcallester", "tandem_bound", "disagreement_bound", "c_tandem_bound", "chebyshev_cantelli_bound",
    "quasi_uniform_kl", "SelfBound", "self_bound", "target_bound", "MinCqPath", "mincq_path",
]  # fmt: skip
