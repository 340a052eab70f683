"""PV-MinCq in JAX: weighted majority votes of least C-bound, adapted to a domain without labels.

A start, after ``import pvmincq_jax as pvm``: labelled source points, target points without labels, a vote for these.

    task = pvm.datasets.moons_task("40", seed=7)
    fit = pvm.fit_validated(task.source, task.source_labels, task.target)
    labels = pvm.predict(fit.model, task.test)

Learn
    `fit_validated` chooses radius, margin and gamma without target labels; `pv_mincq` (Algorithm 3) is told them.
    `fit_transport_validated` and `pv_transport_mincq` move source points in place of labels, for larger shifts.
    `mincq` (Algorithm 1) learns from votes and labels, under jit, vmap and grad. `solve_box_qp` is its quadratic
    program by itself.
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
pytrees. What is less often needed is imported from its room: `pvmincq_jax.voting` (section 2), `pvmincq_jax.matching`
(Algorithm 2), `pvmincq_jax.adaptation` (Algorithm 3, sections 3.4 and 5) and `pvmincq_jax.bounds` (section 3), which
say which equation is in which file. By themselves: `pvmincq_jax.estimators`, `pvmincq_jax.scorers`,
`pvmincq_jax.plots`, and `pvmincq_jax.baselines`, the methods that the paper compares with.
"""

from pvmincq_jax import datasets
from pvmincq_jax._types import Status
from pvmincq_jax.voting.voters import classifier_votes, default_gammas, rbf_votes, stump_thresholds, stump_votes
from pvmincq_jax.voting.voters import GaussianVoters, StumpVoters
from pvmincq_jax.voting.families import FunctionVoters, Voters
from pvmincq_jax.voting.cbound import c_bound, domain_disagreement, gibbs_risk, vote_risk
from pvmincq_jax.voting.cbound import first_moment, second_moment, vote_margin
from pvmincq_jax.voting.factor import vote_factor
from pvmincq_jax.voting.mincq import MinCqSolution, max_margin, mincq
from pvmincq_jax.voting.box_qp import solve_box_qp
from pvmincq_jax.matching.space import Precomputed
from pvmincq_jax.matching.matching import Matching, draw_matchings, match, perturbed_variation
from pvmincq_jax.matching.curve import bottleneck_radius, grid_radii, pv_curve
from pvmincq_jax.matching.selflabel import SelfLabels, carry_labels, nn_self_label, self_label, shared_points
from pvmincq_jax.matching.soft import sinkhorn_matching, sinkhorn_transport, soft_matching, soft_pv
from pvmincq_jax.adaptation.sweeps import Sweep
from pvmincq_jax.adaptation.model import PVMinCq, decision, predict
from pvmincq_jax.adaptation.files import load_model, save_model
from pvmincq_jax.adaptation.label import adapt_votes, pv_mincq, sweep
from pvmincq_jax.adaptation.transport import Transport, identity_transport, match_moments, move, pv_transport
from pvmincq_jax.adaptation.transport_sweeps import pv_transport_mincq, transport_sweep
from pvmincq_jax.adaptation.choice import Choice, choose, committee, model_at, values_at
from pvmincq_jax.adaptation.criteria import class_ratio_gap, label_criterion, neighbour_disagreement
from pvmincq_jax.adaptation.criteria import rs, rs_pv, rs_pv_cbound, rs_pv_risk
from pvmincq_jax.adaptation.transport_criteria import transport_criterion
from pvmincq_jax.adaptation.validate import ValidatedFit, fit_mincq_validated, fit_transport_validated, fit_validated
from pvmincq_jax.adaptation.views import fit_views_validated, fit_votes_validated, pv_mincq_views
from pvmincq_jax.adaptation.shift import LabelShift, Shift, detect_shift, label_shift
from pvmincq_jax.adaptation.distance import LearnedMap, LinearMap, apply_map, learn_map
from pvmincq_jax.bounds.domain import corollary1, joint_error, theorem1
from pvmincq_jax.bounds.deviation import disagreement_deviation_bound, eps_h, gibbs_deviation_bound
from pvmincq_jax.bounds.pac_bayes import c_tandem_bound, chebyshev_cantelli_bound, disagreement_bound, tandem_bound
from pvmincq_jax.bounds.pac_bayes import pac_bound_0, pac_bound_1, pac_bound_2
from pvmincq_jax.bounds.self_bounds import mincq_path, self_bound, target_bound

__version__ = "0.4.0.dev0"
# For type checkers, help() and `import *`; in reading order, a paragraph for each room.
__all__ = [
    "datasets", "Status",
    "classifier_votes", "default_gammas", "rbf_votes", "stump_thresholds", "stump_votes", "FunctionVoters",
    "GaussianVoters", "StumpVoters", "Voters", "c_bound", "domain_disagreement", "first_moment", "second_moment",
    "gibbs_risk", "vote_risk", "vote_margin", "vote_factor", "MinCqSolution", "max_margin", "mincq",
    "solve_box_qp",
    "Precomputed", "match", "perturbed_variation", "Matching", "draw_matchings", "pv_curve", "bottleneck_radius",
    "grid_radii", "SelfLabels", "carry_labels", "self_label", "nn_self_label", "shared_points", "soft_matching",
    "soft_pv", "sinkhorn_matching", "sinkhorn_transport",
    "PVMinCq", "decision", "predict", "save_model", "load_model", "model_at", "values_at", "pv_mincq", "Sweep",
    "sweep", "Transport", "pv_transport", "move", "identity_transport", "match_moments", "pv_transport_mincq",
    "transport_sweep", "Choice", "choose", "committee", "label_criterion", "transport_criterion", "rs", "rs_pv",
    "rs_pv_cbound", "rs_pv_risk", "neighbour_disagreement", "class_ratio_gap", "ValidatedFit", "fit_validated",
    "fit_transport_validated", "fit_mincq_validated", "adapt_votes", "pv_mincq_views", "fit_views_validated",
    "fit_votes_validated", "label_shift", "detect_shift", "LabelShift", "Shift", "learn_map", "apply_map",
    "LearnedMap", "LinearMap",
    "theorem1", "corollary1", "joint_error", "eps_h", "gibbs_deviation_bound", "disagreement_deviation_bound",
    "pac_bound_0", "pac_bound_1", "pac_bound_2", "tandem_bound", "disagreement_bound", "c_tandem_bound",
    "chebyshev_cantelli_bound", "self_bound", "target_bound", "mincq_path",
]  # fmt: skip
