# %% [markdown]
"""PV-MinCq in ten steps: from two samples to an adapted vote, a sweep, a gradient, a bound and a picture.

  python -m experiments.tutorial                     prints every step and writes results/tutorial/tutorial.png, .pdf
  python -m experiments.tutorial --task 50 --seed 7  another task, another draw
  python -m experiments.tutorial --notebook          writes results/tutorial/tutorial.ipynb, the same for Jupyter

The file is a script in cells: editors that know ``# %%`` run it cell by cell. Target labels are used in the last step
only, for the figure of merit; everything before does without them. The first call at a new size compiles for some
seconds.
"""

# %% [script]
from experiments.run.notebook import check_packages, tutorial_options

check_packages("matplotlib", "sklearn")

# %%
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np

import pvmincq_jax as pvm
from pvmincq_jax.datasets import moons_task
from pvmincq_jax.estimators import MinCqClassifier, PVMinCqClassifier
from pvmincq_jax.plots import plot_criterion, plot_transfer
from pvmincq_jax.scorers import RsPvScorer

# Gaussian Gram matrices want float64. Estimators and sweeps see to it themselves; our own calls below do not.
jax.config.update("jax_enable_x64", True)

# Degrees of rotation or "translation"; seed of samples, folds and matchings; points per class and domain; pictures.
angle, seed, per_class, folder = "40", 1000, 40, Path("results/tutorial")

# %% [script]
angle, seed, per_class, folder = tutorial_options(__file__, __doc__, angle, seed, per_class, folder)

# %% [markdown]
# ## 1. Two domains
# A labelled source sample, and a target sample of the same two moons, turned: without labels, and drawn afresh. Rows
# come in random order. `task.test` are more target points, with labels, for the very end.

# %%
task = moons_task(angle, seed, per_class=per_class)
source, labels, target = task.source, task.source_labels, task.target
print(f" 1. Two domains: {len(source)} labelled source points, {len(target)} target points without labels")

# %% [markdown]
# ## 2. How far apart are they?
# The perturbed variation (Algorithm 2) is the share of points that a maximum matching of pairs within a radius leaves
# alone. It falls as the radius grows; the *bottleneck radius* is where it reaches its least value.

# %%
curve = pvm.pv_curve(source, target)
bottleneck = pvm.bottleneck_radius(source, target)
print(f" 2. PV is {float(curve.at(bottleneck / 2)):.2f} at radius {bottleneck / 2:.2f}, 0 from {bottleneck:.2f} on")

# %% [markdown]
# ## 3. Carry the labels over
# A target point takes the label of the source point that it is matched with. A maximum matching is not unique: the mean
# of 16 random ones gives soft labels in [-1, 1], and points that were never matched get weight 0 instead of being
# removed, so that all arrays keep their shapes.

# %%
radius = pvm.bottleneck_radius(source, target, 0.2)  # the smallest radius that leaves at most a fifth alone
found = pvm.self_label(source, labels, target, radius, draws=16, seed=seed)
agreed = np.mean(np.abs(found.labels[found.weights > 0]) == 1)
print(f" 3. {np.sum(found.weights > 0)} target points labelled, {agreed:.0%} of them alike in all 16 matchings")

# %% [markdown]
# ## 4. Learn the vote
# MinCq (Algorithm 1) weighs Gaussian kernels on the target points so that the C-bound on the self-labelled sample is
# least, at a margin mu that we ask for, here a fifth of the largest possible. `pv_mincq` is steps 3 and 4 in one call
# (Algorithm 3). The KKT residual says how far from optimal the weights are.

# %%
model = pvm.pv_mincq(
    source, labels, target, radius=radius, margin=0.2, margin_unit="fraction", gamma=2.0, draws=16, seed=seed
)
print(f" 4. A vote of {np.sum(model.weights != 0)} kernels: C-bound {float(model.c_bound):.3f}", end=", ")
print(f"KKT residual {float(model.kkt_residual):.0e}")

# %% [markdown]
# ## 5. Sweep the grid
# Steps 3 and 4 at every radius, gamma and margin, on all folds of the source but one and on the whole, in one call. The
# matchings are drawn on the host; compiled programs, which problems of nearby sizes share, do the rest.

# %%
sweep = pvm.sweep(source, labels, target, draws=16, seed=seed)
print(f" 5. {sweep.status.size} points of the grid, {1 + len(sweep.source_risk)} votes each", end=", ")
print(f"{np.mean(sweep.status == pvm.Status.SOLVED):.0%} solved")

# %% [markdown]
# ## 6. Choose without target labels
# The paper minimises R_S + PV: the risk on source points that were left out, plus the perturbed variation. Our default
# adds the C-bound on the self-labels, which is large where neighbours got different labels, the share of neighbours in
# the target that the vote itself tells apart, and how far its class ratio is from the source's.

# %%
for name, criterion in (("R_S + PV", pvm.rs_pv), ("Our criterion", pvm.label_criterion)):
    choice = pvm.choose(sweep, criterion(sweep))
    print(f" 6. {name} chooses radius {choice.radius:.2f}, gamma {choice.gamma:.2f}, margin {choice.margin:g} mu_max")

# %% [markdown]
# ## 7. Follow the gradient
# The C-bound is a differentiable function of gamma and of the margin, through the quadratic program. A central
# difference says the same. `python -m experiments.differentiate` follows such a gradient past the grid's best point.

# %%
chosen = sweep.self_labels[choice.grid_index[0]]


def learnt_bound(log_gamma: jax.Array, fraction: jax.Array) -> jax.Array:
    """The C-bound on the self-labels, of the vote that is learnt on them."""
    votes = pvm.rbf_votes(target, target, jax.numpy.exp(log_gamma))
    mask = chosen.weights > 0
    margin = fraction * pvm.max_margin(votes, chosen.labels, sample_weights=chosen.weights, voter_mask=mask)
    return pvm.mincq(votes, chosen.labels, margin, sample_weights=chosen.weights, voter_mask=mask).c_bound


value_and_slope = jax.jit(jax.value_and_grad(learnt_bound, (0, 1)))
point, step = (np.log(choice.gamma), choice.margin), 1e-4
slope = value_and_slope(*point)[1]
difference = (value_and_slope(point[0] + step, point[1])[0] - value_and_slope(point[0] - step, point[1])[0]) / 2 / step
print(f" 7. d C-bound / d log gamma = {float(slope[0]):+.5f}, by differences {float(difference):+.5f}", end="; ")
print(f"d C-bound / d margin = {float(slope[1]):+.5f}")

# %% [markdown]
# ## 8. The same in scikit-learn
# `PVMinCqClassifier` is steps 2 to 6 behind `fit`, with labels of any kind, for pipelines and searches,
# scikit-learn's and skada's; without arguments it moves the source points instead. A scorer applies R_S + PV to any
# other estimator, too; here to the classifier itself, on the sample that it has learnt from.

# %%
classifier = PVMinCqClassifier(random_state=seed).fit_domains(source, labels, target)
x, y = np.concatenate([source, target]), np.concatenate([labels, np.zeros(len(target))])
domain = np.repeat([1, -1], [len(source), len(target)])
score = RsPvScorer()(classifier, x, y, sample_domain=domain)
print(f" 8. The classifier chose radius {classifier.radius_:.2f}, gamma {classifier.gamma_:.2f}", end=", ")
print(f"margin {classifier.margin_fraction_:.2g} mu_max; -(R_S + PV) = {score:.3f}")

# %% [markdown]
# ## 9. What is guaranteed
# On matched pairs, which share their labels, the Gibbs risk changes by at most eps_H / 2 from source to target, where
# eps_H is the largest change of any voter over any pair (section 3.3). A large radius, or narrow kernels, make it
# large, and then the bound says little.

# %%
model = classifier.model_
pairs = model.pairs
pair_votes = [pvm.rbf_votes(x, model.centers, model.gamma) for x in (source[pairs.source], target[pairs.target])]
moved = float(pvm.eps_h(*pair_votes))
risks = [
    float(pvm.gibbs_risk(one, labels[pairs.source], model.weights, sample_weights=pairs.weights)) for one in pair_votes
]
bound = float(pvm.gibbs_deviation_bound(moved, model.weights))
print(f" 9. eps_H = {moved:.2f}: Gibbs risks {risks[0]:.4f} and {risks[1]:.4f} on the pairs differ by", end=" ")
print(f"{abs(risks[0] - risks[1]):.4f}, and by {bound:.4f} at most")

# %% [markdown]
# ## 10. The picture, and the truth
# Who labelled whom, what the choice was made by, and, for the first and only time, target labels: accuracy on fresh
# target points, beside MinCq on the source alone.

# %%
alone = MinCqClassifier(random_state=seed).fit(source, labels)
figure, axes = plt.subplots(1, 2, figsize=(12.5, 5.2), layout="constrained")
plot_transfer(classifier, ax=axes[0])
plot_criterion(classifier, ax=axes[1])
folder.mkdir(parents=True, exist_ok=True)
for ending in ("png", "pdf"):
    figure.savefig(folder / f"tutorial.{ending}", dpi=130)
print(
    f"10. Accuracy on {len(task.test)} fresh target points: {classifier.score(task.test, task.test_labels):.1%}", end=""
)
print(f", from the source alone {alone.score(task.test, task.test_labels):.1%}; see {folder / 'tutorial.png'}")

# %% [script]
plt.close(figure)
