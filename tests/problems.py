"""Random MinCq problems of every kind, and another solver's answer to them."""

from typing import NamedTuple

import clarabel
import numpy as np
from scipy import sparse

KINDS = (
    "gaussian",
    "narrow",
    "wide",
    "stumps",
    "duplicated",
    "constant",
    "zero_margin",
    "single",
    "few_samples",
    "many_samples",
    "zero_weights",
    "masked",
    "soft",
    "signed",
    "signs",
    "complements",
    "stump_complements",
)
# Of mu_max: where the box is slack, ordinary ones, and ever closer to mu_max itself.
FRACTIONS = (1e-6, 1e-4, 1e-2, 0.1, 0.5, 0.9, 0.97, 0.995, 0.999, 0.99999, 1 - 1e-7, 1.0)


class Problem(NamedTuple):
    votes: np.ndarray
    labels: np.ndarray
    sample_weights: np.ndarray | None
    voter_mask: np.ndarray | None
    fraction: float


def _points(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    labels = rng.choice([-1.0, 1.0], count)
    labels[:2] = [-1, 1]
    return rng.normal(size=(count, 2)) + 0.7 * labels[:, None], labels


def kernel(points: np.ndarray, centers: np.ndarray, gamma: float) -> np.ndarray:
    """Votes of Gaussian kernels, in NumPy ``[m, n]``."""
    return np.exp(-gamma * np.sum((points[:, None] - centers[None]) ** 2, axis=-1))


def random_problem(kind: str, seed: int, count: int | None = None, voters: int | None = None) -> Problem:
    """One problem, of the kind's size unless told; the margin is a fraction of mu_max, from 1e-6 to 1 itself."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    count = count or {"few_samples": 15, "many_samples": 150}.get(kind, 50)
    voters = voters or {"single": 1, "few_samples": 60, "many_samples": 20}.get(kind, 40)
    points, labels = _points(rng, count)
    centers, _ = _points(rng, max(voters, 2))
    gamma = {"narrow": 10 ** rng.uniform(1.5, 3), "wide": 10 ** rng.uniform(-2, -0.5)}.get(
        kind, 10 ** rng.uniform(-1, 1)
    )
    votes = kernel(points, centers[:voters], gamma)
    weights = mask = None
    if kind in ("stumps", "stump_complements"):
        features, thresholds = rng.integers(0, 2, voters), rng.normal(size=voters)
        votes = np.where(points[:, features] > thresholds, 1.0, -1.0)
    elif kind in ("signs", "complements"):
        votes = rng.choice([-1.0, 1.0], (count, voters))
    elif kind == "duplicated":
        votes = votes[:, rng.integers(0, 10, voters)]
    elif kind == "constant":
        votes[:, 0], votes[:, 1] = 1.0, 0.0
    elif kind == "zero_margin":
        votes[:, 0] -= labels * (labels @ votes[:, 0]) / count
    elif kind == "zero_weights":
        weights = rng.uniform(size=count) * (rng.uniform(size=count) < 0.3)
        weights[:2] = 1
    elif kind == "masked":
        mask = rng.uniform(size=voters) < 0.6
        mask[0] = True
    elif kind == "soft":
        labels = labels * rng.uniform(size=count)
    elif kind == "signed":
        votes = np.tanh(rng.normal(size=(count, voters)) + 0.2 * labels[:, None])
    if kind.endswith("complements"):  # each voter with its negative
        votes[:, voters // 2 : 2 * (voters // 2)] = -votes[:, : voters // 2]
    fraction = float(rng.choice([1e-6, 1e-4, 1e-2, 0.1, 0.5, 0.9, 0.999, 1.0]))
    return Problem(votes, labels, weights, mask, fraction)


def moments(problem: Problem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Active voters' weighted votes, their margins, and the shares of the sample points."""
    votes = problem.votes if problem.voter_mask is None else problem.votes[:, problem.voter_mask]
    weights = np.ones(len(votes)) if problem.sample_weights is None else problem.sample_weights
    shares = weights / weights.sum()
    return votes * np.sqrt(shares)[:, None], votes.T @ (shares * problem.labels), shares


def clarabel_objective(root: np.ndarray, margins: np.ndarray, fraction: float) -> float:
    """The least w'Mw over mu^2, by Clarabel, in v = w / mu and with z = F v as variables of their own.

    That form never squares the votes, so it keeps its digits on ill-conditioned problems.
    """
    voters = root.shape[1]
    # Orthogonal rows of the same Gram matrix: fewer and better scaled equations.
    _, singular, right = np.linalg.svd(root, full_matrices=False)
    kept = singular > 1e-13 * singular[0]
    factor = singular[kept, None] * right[kept]
    rank = len(factor)
    mu = fraction * np.mean(np.abs(margins))
    scale = 1 / (voters * mu)  # the box of v; the variables are v / scale, in [-1, 1]
    factor, normal = factor * scale, margins * scale
    size = np.linalg.norm(factor @ np.sign(margins)) * fraction
    P = sparse.diags(np.r_[np.zeros(voters), np.ones(rank)], format="csc")
    equalities = np.block([[factor / size, -np.eye(rank)], [normal[None], np.zeros((1, rank))]])
    box = np.hstack([np.eye(voters), np.zeros((voters, rank))])
    A = sparse.csc_matrix(np.vstack([equalities, box, -box]))
    b = np.r_[np.zeros(rank), 1.0, np.ones(2 * voters)]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    cones = [clarabel.ZeroConeT(rank + 1), clarabel.NonnegativeConeT(2 * voters)]
    # At the tightest it may go astray, and end far from any solution.
    for tolerance in (1e-11, 1e-10):
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
        solution = clarabel.DefaultSolver(P, np.zeros(voters + rank), A, b, cones, settings).solve()
        if solution.status != clarabel.SolverStatus.MaxIterations:
            break
    x = np.array(solution.x[:voters])
    return float(np.sum((factor @ x) ** 2)) / float(normal @ x) ** 2
