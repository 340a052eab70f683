"""The size of votes, and how far floating-point numbers know their margins."""

import numpy as np

from pvmincq_jax._types import AnyArray
from pvmincq_jax.voting.factor import array_module, constant

__all__: list[str] = []


def margin_rounding(
    votes: AnyArray, labels: AnyArray, shares: AnyArray, weights: AnyArray, margin: AnyArray | float
) -> AnyArray:
    """How far m'w is known, relative to the margin: the root mean square if each p_i y_i h_j(x_i) w_j is rounded."""
    xp = array_module(votes)
    squares = (shares * labels) ** 2 @ (votes**2 @ weights**2)
    return np.finfo(votes.dtype).eps * xp.sqrt(squares) / margin


def unit_scale(votes: AnyArray, voter_mask: AnyArray = True) -> AnyArray:
    """The power of 2 that brings the largest vote, of the voters that take part, to a size in [1/2, 1).

    Scaling votes and margin by it is exact and leaves the weights as they are. Squares of votes neither vanish nor
    overflow then, and what is far smaller than the largest vote does not count. It is constant to derivatives.
    """
    xp = array_module(votes)
    largest = xp.max(xp.abs(xp.where(voter_mask, constant(votes), 0)))
    usable = xp.isfinite(largest) & (largest > 0)
    largest = xp.where(usable, largest, 1)
    # With largest = f 2^e, f / largest is 2^-e without rounding; 0 where the largest vote is all but infinite.
    scale = xp.frexp(largest)[0] / largest
    return xp.where(usable & (scale > 0), scale, 1).astype(votes.dtype)
