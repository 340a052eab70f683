"""Smooth counterparts of the matching, the perturbed variation and eps_H, for following gradients through them."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pvmincq_jax._checks import check_positive, check_rank, check_samples
from pvmincq_jax._distances import root, squared_distances
from pvmincq_jax._types import Array, ArrayLike

__all__ = ["SoftMatching", "soft_eps_h", "soft_matching", "soft_pv"]


class SoftMatching(NamedTuple):
    """A matching with shares in place of pairs.

    Attributes:
      plan: how much of each pair is matched ``[m_s, m_t]``, not negative; rows and columns sum to at most 1.
      edges: how much each pair is within the radius ``[m_s, m_t]``, in [0, 1].
    """

    plan: Array
    edges: Array

    @property
    def pair_weights(self) -> Array:
        """The matched share that is within the radius ``[m_s, m_t]``."""
        return self.plan * self.edges

    @property
    def pv(self) -> Array:
        """1/2 (S_u / m_s + T_u / m_t) with shares of points for numbers of points."""
        rows, columns = self.plan.shape
        return 1 - jnp.sum(self.pair_weights) * (1 / rows + 1 / columns) / 2


def soft_matching(
    source: ArrayLike, target: ArrayLike, radius: ArrayLike, temperature: ArrayLike, iterations: int = 60
) -> SoftMatching:
    """A smooth counterpart of a maximum matching of the radius graph (Algorithm 2). Not in the paper.

    The size of a maximum matching is the value of a linear program, max sum_st P_st e_st over P >= 0 whose rows and
    columns sum to at most 1, with e_st = 1 where |x_s - x_t| <= radius and 0 elsewhere. Two things make it smooth. The
    indicator becomes e_st = sigmoid((1 - |x_s - x_t|^2 / radius^2) / t), and the program gets t times the entropy of P
    and of what rows and columns leave unmatched. Its solution has the form P_st = a_s b_t K_st, where unmatched shares
    are a_s and b_t themselves, so that Sinkhorn's iteration is

    a_s = 1 / (1 + sum_t K_st b_t),   b_t = 1 / (1 + sum_s K_st a_s),   K_st = exp(e_st / t) - 1.

    The -1 keeps pairs far outside the radius at P = 0; without it each would weigh as much as staying unmatched does,
    and there are many of them. As t goes to 0 both changes vanish (if no distance is exactly the radius).

    Args:
      source, target: ``[m_s, d]`` and ``[m_t, d]``.
      radius: above 0.
      temperature: t, above 0; from about 0.01 on in float32.
      iterations: of Sinkhorn; more are needed at low temperatures. Derivatives go through them, so that they are those
        of the value returned, converged or not.

    Returns: a `SoftMatching`; it keeps the sums of rows and columns at any number of iterations.

    Example:
      >>> points = np.array([[0.0], [1.0]])
      >>> print(np.asarray(soft_matching(points, points + 0.1, 0.5, 0.1).plan, float).round(3))
      [[0.993 0.   ]
       [0.    0.993]]
    """
    check_samples(source, target)
    check_positive("radius", radius)
    check_positive("temperature", temperature)
    return _soft_matching(*map(jnp.asarray, (source, target, radius, temperature)), iterations)


@partial(jax.jit, static_argnames="iterations")
def _soft_matching(source: Array, target: Array, radius: Array, temperature: Array, iterations: int) -> SoftMatching:
    edges = jax.nn.sigmoid((1 - squared_distances(source, target) / radius**2) / temperature)
    # K, a and b are held divided by exp(1/t), exp(-1/2t) and exp(-1/2t), which keeps them inside the floats' range.
    alone = jnp.exp(-0.5 / temperature)
    kernel = jnp.exp((edges - 1) / temperature) - alone**2

    def iterate(b: Array, _: None) -> tuple[Array, None]:
        a = 1 / (alone + kernel @ b)
        return 1 / (alone + a @ kernel), None

    b, _ = jax.lax.scan(iterate, jnp.ones(target.shape[0], edges.dtype), None, length=iterations)
    a = 1 / (alone + kernel @ b)
    # Rows are met exactly now; a column that is still too full is cut back to 1.
    b = jnp.minimum(b, 1 / (alone + a @ kernel))
    return SoftMatching(a[:, None] * kernel * b, edges)


def soft_pv(
    source: ArrayLike, target: ArrayLike, radius: ArrayLike, temperature: ArrayLike, iterations: int = 60
) -> Array:
    """A smooth surrogate of the perturbed variation (Algorithm 2), its limit at temperature 0. Not in the paper.

    1 - 1/2 (1 / m_s + 1 / m_t) sum_st P_st e_st, see `soft_matching`. Pairs near the radius count in part, so that it
    is above `pvmincq_jax.perturbed_variation` as a rule, and the more so the higher the temperature.

    Args: source ``[m_s, d]``, target ``[m_t, d]``, radius, temperature and iterations as of `soft_matching`.

    Returns: a scalar in [0, 1], differentiable in the points, the radius and the temperature.

    Example:
      >>> source, target = np.array([[0.0], [1.0]]), np.array([[0.1], [5.0]])
      >>> print([round(float(soft_pv(source, target, 0.2, t)), 3) for t in (0.2, 0.1, 0.01)], "and exactly 0.5")
      [0.552, 0.504, 0.5] and exactly 0.5
    """
    return soft_matching(source, target, radius, temperature, iterations).pv


def soft_eps_h(source_votes: ArrayLike, target_votes: ArrayLike, pair_weights: ArrayLike) -> Array:
    """How far voters move between softly matched points: eps_H (definition 4) with a mean for the maximum.

    (sum_st W_st mean_j (h_j(x_s) - h_j(x_t))^2 / sum_st W_st)^(1/2), which is at most `pvmincq_jax.eps_h` of all pairs
    of weight above 0.

    Args:
      source_votes: ``[m_s, n]``.
      target_votes: ``[m_t, n]``.
      pair_weights: W ``[m_s, m_t]``, not negative.

    Returns: a scalar; 0, with derivative 0, if no pair has any weight.

    Example:
      >>> print(soft_eps_h(np.array([[0.5, 1.0]]), np.array([[0.5, 0.0], [9.0, 9.0]]), np.array([[1.0, 0.0]])).round(3))
      0.707
    """
    for name, value in (("source_votes", source_votes), ("target_votes", target_votes), ("pair_weights", pair_weights)):
        check_rank(name, value, 2)
    if np.shape(pair_weights) != (np.shape(source_votes)[0], np.shape(target_votes)[0]):
        raise ValueError(
            f"pair_weights must have a row per source point and a column per target point "
            f"({np.shape(source_votes)[0]}, {np.shape(target_votes)[0]}); their shape is {np.shape(pair_weights)}"
        )
    square = squared_distances(source_votes, target_votes) / np.shape(source_votes)[1]
    total = jnp.sum(pair_weights)
    return root(jnp.sum(pair_weights * square) / jnp.maximum(total, jnp.finfo(square.dtype).tiny))
