"""PBDA: the PAC-Bayesian domain adaptation of Germain, Habrard, Laviolette and Morvant (2013), in kernel form.

A Gaussian posterior over linear classifiers in the kernel's feature space, centred on sum_i alpha_i k(x_i, .), trades
its Gibbs risk on the source against how differently its classifiers disagree on the two domains. The cost is the one
of the publication, and so is the only start, alpha = y / N (0 on the target).

The cost has a kink wherever the domains disagree equally, which is where most of its minima lie and where L-BFGS, the
published optimiser, gets stuck; and it has many minima. What is ours, with SciPy's L-BFGS-B at work in all of it:

- Coordinates beta = F' alpha with K = F F', in which the regulariser is 1/2 |beta|^2.
- The kink as a multiplier: A |gap| = max over |u| <= A of u gap, by the method of multipliers (`_follow`).
- Four descents from the start (`DESCENTS`), of which the lowest is continued to its end.

Example:
  >>> source, labels = np.array([[0.0], [1.0]]), np.array([-1, 1])
  >>> model = fit(source, labels, np.array([[0.1], [0.9]]), PbdaParams(1.0, 1.0, 1.0))
  >>> print(np.sign(decision(model, np.array([[0.2], [0.9]]))))
  [-1.  1.]
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpstrf
from scipy.optimize import minimize
from scipy.special import ndtr

from pvmincq_jax._threads import one_blas_thread
from pvmincq_jax.baselines._form import KernelModel, Sample, decision, expand, make_fits, make_grid, on_kernels

__all__ = ["GRID", "VALIDATION", "PbdaModel", "PbdaParams", "decision", "fit", "fit_grid"]

# L-BFGS depends on its coordinates, and so does the minimum that it comes to. The first steps of a descent are
# taken in the coordinates lambda^(-q/2) beta, with lambda the eigenvalues of K: q = 1 is the published alpha, which
# turns to smooth functions first, q = 0 is beta itself, which does not, and q = 1/2 lies between them. Beside q stands
# the multiplier's step as a share of C, which rounds the kink off; the last descent leaves the kink as it is, as the
# published optimiser does.
SHARP = 1e9
STEP = 0.1
DESCENTS = ((0.0, STEP), (0.5, STEP), (1.0, STEP), (1.0, SHARP))
DESCENT_STEPS = 20
MOST_STEPS = 2000
MOST_MULTIPLIERS = 12
SMALLEST = 1e-6
# The gap counts as closed when it makes up less than this share of the cost.
_CLOSED = 1e-4
_TANGENT = 1 / np.sqrt(2 * np.pi)


class PbdaParams(NamedTuple):
    """Parameters of PBDA.

    Attributes:
      gamma: of the Gaussian kernel.
      risk: C, the weight of the source risk.
      disagreement: A, the weight of the domain disagreement.
    """

    gamma: float
    risk: float
    disagreement: float


class PbdaModel(NamedTuple):
    """PBDA's expansion, with the cost that it reached.

    Attributes:
      kernel: the classifier, an expansion over source and target.
      cost: scalar.
    """

    kernel: KernelModel
    cost: np.ndarray


GRID = make_grid(PbdaParams, risk=(0.01, 1.0, 10.0), gamma=(0.5, 2.0, 8.0), disagreement=(0.01, 1.0, 10.0))
VALIDATION = "reverse"


class _Problem(NamedTuple):
    """PBDA's cost, the bound of theorem 1 made a trade-off, to be minimised over beta = F' alpha ``[r]``.

    C sum_S Phi_cvx(y_i f_i) + A |sum_T Phi_dis(f_i) - sum_S Phi_dis(f_i)| + 1/2 |beta|^2, where f = K alpha, K_ii = 1,
    Phi(x) = 1/2 (1 - erf(x / sqrt 2)), Phi_cvx(x) = max(Phi(x), 1/2 - x / sqrt(2 pi)), which is the tangent
    at 0 where Phi is concave, and Phi_dis(x) = 2 Phi(x) Phi(-x). Below, R and gap are the sums behind C and A.

    Attributes:
      factor: F ``[N, r]``, its source rows times their labels: the disagreement is an even function of the margin.
      domains: -1 for source points, which come first, and 1 for target points ``[N]``.
      m_s: source points.
      risk: C.
      disagreement: A.
    """

    factor: np.ndarray
    domains: np.ndarray
    m_s: int
    risk: float
    disagreement: float

    def parts(self, beta: np.ndarray) -> tuple[float, float, np.ndarray, np.ndarray]:
        """C R + 1/2 |beta|^2, the gap, and the gradients of C R and of the gap in the margins, ``[m_s]``, ``[N]``."""
        margins = self.factor @ beta
        phi, density = ndtr(-margins), _TANGENT * np.exp(-0.5 * margins * margins)
        gap = 2 * (self.domains @ (phi - phi * phi))
        slopes = (4 * phi - 2) * density * self.domains
        at_source = margins[: self.m_s]
        convex = np.maximum(phi[: self.m_s], 0.5 - _TANGENT * at_source).sum()
        pull = -self.risk * np.where(at_source >= 0, density[: self.m_s], _TANGENT)
        return self.risk * convex + beta @ beta / 2, gap, pull, slopes

    def cost(self, beta: np.ndarray) -> tuple[float, float]:
        """The cost and the gap."""
        smooth, gap, *_ = self.parts(beta)
        return smooth + self.disagreement * abs(gap), gap

    def within(self, multiplier: float) -> float:
        """The multiplier, or the end of [-A, A] next to it."""
        return min(max(multiplier, -self.disagreement), self.disagreement)


def _descend(
    problem: _Problem, beta: np.ndarray, multiplier: float, step: float, tolerance: float, most: int, scale: Any = 1.0
) -> np.ndarray:
    """L-BFGS-B on a cost without kink, in the coordinates beta / scale.

    In place of A |gap| stands max over |u| <= A of u gap - (u - multiplier)^2 / (2 step), which is less by no more than
    (A + |multiplier|)^2 / (2 step).
    """

    def value_and_gradient(scaled: np.ndarray) -> tuple[float, np.ndarray]:
        beta = scale * scaled
        smooth, gap, pull, slopes = problem.parts(beta)
        u = problem.within(multiplier + step * gap)
        slopes *= u
        slopes[: problem.m_s] += pull
        return smooth + u * gap - (u - multiplier) ** 2 / (2 * step), scale * (beta + slopes @ problem.factor)

    options = {"maxiter": most, "maxfun": 2 * most, "ftol": tolerance, "gtol": 1e-6}
    return scale * minimize(value_and_gradient, beta / scale, jac=True, method="L-BFGS-B", options=options).x


def _follow(problem: _Problem, beta: np.ndarray) -> tuple[float, np.ndarray]:
    """The method of multipliers from one point: the lowest cost on its way, and where it was.

    The multiplier moves by step times gap, within [-A, A]. At its end either the gap is 0, or the multiplier is A times
    the gap's sign: both are stationary points of the cost itself.
    """
    best, multiplier, step, last = (problem.cost(beta)[0], beta), 0.0, STEP * problem.risk, np.inf
    for _ in range(MOST_MULTIPLIERS):
        beta = _descend(problem, beta, multiplier, step, 1e-7, MOST_STEPS)
        value, gap = problem.cost(beta)
        if value < best[0]:
            best = value, beta
        moved = problem.within(multiplier + step * gap)
        if moved == multiplier or problem.disagreement * abs(gap) < _CLOSED * value:
            break
        if abs(gap) > last / 4:
            step *= 4
        multiplier, last = moved, abs(gap)
    return best


def _minimise(problem: _Problem, start: np.ndarray) -> tuple[float, np.ndarray]:
    """The cost reached from one start, and beta ``[r]``: each of `DESCENTS`, then on from the lowest end.

    |Phi_dis''| is at most 2 / pi, so that no u gap with |u| <= A is more concave than 2 A lambda_max / pi. Up to 1 the
    regulariser makes up for it: the cost is convex, and one descent comes to its only minimum.
    """
    ends, eigenvalues = [], np.sum(problem.factor**2, axis=0)
    convex = 2 * problem.disagreement * np.max(eigenvalues) <= np.pi
    for power, step in DESCENTS[:1] if convex else DESCENTS:
        beta = _descend(problem, start, 0.0, step * problem.risk, 1e-4, DESCENT_STEPS, eigenvalues ** (power / 2))
        ends.append(_descend(problem, beta, 0.0, STEP * problem.risk, 1e-4, MOST_STEPS))
    return _follow(problem, min(ends, key=lambda beta: problem.cost(beta)[0]))


@one_blas_thread()
def _factor(kernel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """F ``[N, r]`` with orthogonal columns and F F' = K up to `SMALLEST` a diagonal entry; alpha = back beta.

    A pivoted Cholesky factorisation stops after r pivots p with L L' = K, exact in the rows and columns of the pivots;
    F = L V, with V the eigenvectors of L'L. The expansion alpha_p = L_p'^-1 V beta, 0 elsewhere, has K alpha = F beta
    and alpha' K alpha = |beta|^2 exactly, so its cost is the one that was minimised.
    """
    packed, pivots, rank, _ = dpstrf(kernel, tol=SMALLEST, lower=1)
    rows = pivots - 1
    lower = np.tril(packed)[:, :rank]
    vectors = np.linalg.eigh(lower.T @ lower)[1]
    factor, back = np.zeros((2, kernel.shape[0], rank))
    factor[rows] = lower @ vectors
    back[rows[:rank]] = solve_triangular(lower[:rank], vectors, lower=True, trans="T")
    return factor, back


@one_blas_thread()  # for thousands of products of a matrix and a vector, tens of microseconds each
def _train(
    sample: Sample, points: np.ndarray, factored: tuple[np.ndarray, np.ndarray], params: PbdaParams
) -> PbdaModel:
    """The minimum of the cost of a kernel matrix that has been factored."""
    (factor, back), m_s = factored, len(sample.source)
    signed = np.concatenate([sample.labels[:, None] * factor[:m_s], factor[m_s:]])
    domains = np.where(np.arange(len(points)) < m_s, -1.0, 1.0)
    problem = _Problem(signed, domains, m_s, float(params.risk), float(params.disagreement))
    reached, beta = _minimise(problem, np.sum(signed[:m_s], axis=0) / len(points))
    return PbdaModel(expand(points, params.gamma, back @ beta), np.asarray(reached))


fit, fit_grid = make_fits(PbdaParams, on_kernels(_train, factor=_factor))
