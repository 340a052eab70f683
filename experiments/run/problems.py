"""Random MinCq problems of every kind, the moments they have, and bounds on their least objectives by other hands."""

from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "FRACTIONS",
    "HARD_KINDS",
    "KINDS",
    "Problem",
    "clarabel_solution",
    "dual_vectors",
    "kernel",
    "lower_bound",
    "moments",
    "random_problem",
]

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
# Votes whose squares vanish or overflow, that are all but equal, or whose voters differ widely in size.
HARD_KINDS = ("tiny", "huge", "far", "very_wide", "unequal", "paired_stumps")
# Of mu_max: where the box is slack, ordinary ones, and ever closer to mu_max itself.
FRACTIONS = (1e-6, 1e-4, 1e-2, 0.1, 0.5, 0.9, 0.97, 0.995, 0.999, 0.99999, 1 - 1e-7, 1.0)


class Problem(NamedTuple):
    """A random problem; the margin is a fraction of mu_max."""

    votes: np.ndarray
    labels: np.ndarray
    sample_weights: np.ndarray | None
    voter_mask: np.ndarray | None
    fraction: float


def _points(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    labels = rng.choice([-1.0, 1.0], count)
    labels[:2] = [-1, 1]
    return rng.normal(size=(count, 2)) + 0.7 * labels[:, None], labels


def _squares(points: np.ndarray, centers: np.ndarray) -> np.ndarray:
    return np.sum((points[:, None] - centers[None]) ** 2, axis=-1)


def kernel(points: np.ndarray, centers: np.ndarray, gamma: float) -> np.ndarray:
    """Votes of Gaussian kernels, in NumPy ``[m, n]``."""
    return np.exp(-gamma * _squares(points, centers))


def random_problem(kind: str, seed: int, count: int | None = None, voters: int | None = None) -> Problem:
    """One problem, of the kind's size unless told; the margin is a fraction of mu_max, from 1e-6 to 1 itself."""
    kinds = KINDS + HARD_KINDS
    rng = np.random.default_rng([seed, kinds.index(kind)])
    count = count or {"few_samples": 15, "many_samples": 150}.get(kind, 50)
    voters = voters or {"single": 1, "few_samples": 60, "many_samples": 20}.get(kind, 40)
    points, labels = _points(rng, count)
    centers, _ = _points(rng, max(voters, 2))
    gamma = {"narrow": 10 ** rng.uniform(1.5, 3), "wide": 10 ** rng.uniform(-2, -0.5)}.get(
        kind, 10 ** rng.uniform(-1, 1)
    )
    votes = kernel(points, centers[:voters], gamma)
    weights = mask = None
    if kind in ("stumps", "stump_complements", "paired_stumps"):
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
    elif kind in HARD_KINDS:
        votes, weights, mask = _harder(kind, rng, votes, points, centers[:voters])
    fraction = float(rng.choice([1e-6, 1e-4, 1e-2, 0.1, 0.5, 0.9, 0.999, 1.0]))
    return Problem(votes, labels, weights, mask, fraction)


def _harder(
    kind: str, rng: np.random.Generator, votes: np.ndarray, points: np.ndarray, centers: np.ndarray
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Votes, sample weights and mask of `HARD_KINDS`."""
    (count, voters) = votes.shape
    if kind == "tiny":
        votes = votes * 10 ** rng.uniform(-290, -100)
    elif kind == "huge":
        votes = votes * 10 ** rng.uniform(100, 290)
    elif kind == "far":
        # Narrow kernels whose largest vote is of any size down to 1e-280.
        squares = _squares(points, centers)
        votes = np.exp(-squares * rng.uniform(1, 20) - rng.uniform(0, 280) * np.log(10))
    elif kind == "very_wide":
        votes = kernel(points, centers, 10 ** rng.uniform(-6, -2))
    elif kind == "unequal":
        votes = votes * 10 ** rng.uniform(-6, 0, voters)
    else:
        # Stumps in equal pairs, on weighted points, some of them masked.
        votes[:, 1::2] = votes[:, 0 : voters - 1 : 2]
        mask: np.ndarray = np.asarray(rng.uniform(size=voters) < 0.8)
        mask[0] = True
        return votes, np.asarray(rng.uniform(size=count)), mask
    return votes, None, None


def moments(problem: Problem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Active voters' weighted votes, their margins, and the shares of the sample points."""
    votes = problem.votes if problem.voter_mask is None else problem.votes[:, problem.voter_mask]
    weights = np.ones(len(votes)) if problem.sample_weights is None else problem.sample_weights
    shares = weights / weights.sum()
    return votes * np.sqrt(shares)[:, None], votes.T @ (shares * problem.labels), shares


def clarabel_solution(root: np.ndarray, margins: np.ndarray, fraction: float) -> tuple[np.ndarray, np.ndarray]:
    """Weights in [-1, 1] with their least second moment at a fraction of mu_max, up to a factor, and a dual vector.

    By Clarabel, in v = w / mu and with z = F v as variables of their own. That form never squares the votes, so it
    keeps its digits on ill-conditioned problems.

    Returns: v ``[n]``, and z ``[m]`` for `lower_bound`.
    """
    import clarabel
    from scipy import sparse

    voters = root.shape[1]
    # Orthogonal rows of the same Gram matrix: fewer and better scaled equations.
    left, singular, right = np.linalg.svd(root, full_matrices=False)
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
    settings: Any = clarabel.DefaultSettings()
    settings.verbose = False
    cones = [clarabel.ZeroConeT(rank + 1), clarabel.NonnegativeConeT(2 * voters)]
    # At the tightest it may go astray, and end far from any solution.
    for tolerance in (1e-11, 1e-10):
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
        solution = clarabel.DefaultSolver(P, np.zeros(voters + rank), A, b, cones, settings).solve()
        if solution.status != clarabel.SolverStatus.MaxIterations:
            break
    return np.array(solution.x[:voters]), left[:, kept] @ np.array(solution.x[voters:])


def dual_vectors(root: np.ndarray, target: np.ndarray, weights: np.ndarray, mu: float) -> list[np.ndarray]:
    """Dual vectors near to Fw of weights w that are all but optimal, for `lower_bound`.

    Optimal weights have z = Fw and a gradient F'z - y m that vanishes but at the bounds, so that its products with the
    slacks s, the gap, vanish. As m = F'q, the change of Fw of least length with that property, up to small singular
    values, takes from Fw - y q its part in the span of the columns of F diag(s); y is such that q'z = mu.

    Args:
      root: F ``[m, n]``, votes scaled by the roots of the shares.
      target: q ``[m]``, labels scaled alike.
      weights: in [-1/n, 1/n].
      mu: m'w.

    Returns: a z ``[m]`` for each of a few ranks.
    """
    vote, slack = root @ weights, np.maximum(1 - np.abs(weights) * len(weights), 0)
    left, singular, _ = np.linalg.svd(root * slack, full_matrices=False)
    duals = []
    for tolerance in (1e-10, 1e-11, 1e-12, 1e-13, 1e-14, 1e-15):
        basis = left[:, singular > tolerance * singular[0]]
        along = basis @ (basis.T @ target)
        rest = vote - basis @ (basis.T @ vote)
        y = (mu - target @ rest) / (along @ along) if along.any() else 0.0
        duals.append(y * along + rest)
    return duals


def lower_bound(root: np.ndarray, margins: np.ndarray, mu: float, z: np.ndarray) -> float:
    """A lower bound on w'F'Fw over m'w = mu and |w_j| <= 1/n, for any z ``[m]``; in the precision of F and m.

    For w in the box and any y, z'Fw = y mu + (F'z - y m)'w >= y mu - s(y), s(y) = 1/n sum_j |(F'z - y m)_j|, and so
    |Fw| >= (y mu - s(y)) / |z|. The right side is concave in y and linear between the ratios of F'z and m.
    """
    gradient, sizes = z @ root, np.abs(margins)
    moving = sizes > 0
    ratios, steps = gradient[moving] / margins[moving], sizes[moving]
    order = np.argsort(ratios)
    # The slope in y behind each ratio; the largest value is where it turns.
    slope = len(margins) * mu - (2 * np.cumsum(steps[order]) - np.sum(steps))
    y = ratios[order][min(int(np.sum(slope > 0)), len(order) - 1)]
    level = y * mu - np.mean(np.abs(gradient - y * margins))
    return float(np.maximum(level, 0) ** 2 / np.sum(z**2))
