"""What has changed between two domains, told without target labels, and what is to be done. Not in the paper.

Three explanations of a target are tried before any point is moved, each by a test that may refuse it:

1. the classes have other shares, and nothing else has changed;
2. the first one does not hold, but there is a subspace in which it does;
3. the cells of the source, small groups of neighbours whatever their class, have other shares: a covariate shift.

Under 1 and 3 the source stays where it is. Under 3 it is weighed cell by cell to look like the target, which leaves the
share of each class among the points of one place as it is. Under 1 it is not: classes that have changed so that they
look like another ratio are no different in an unlabelled sample. The cells are also the finer test: 1 is refused where
they do not explain the target.
Under 2 the vote B_L of the subspace has the same risk R_L in both domains. A vote B of the target that contradicts it
on more than 2 R_L of the points is worse than it: R_T(B) >= P_T(B != B_L) - R_L > R_L. That decides whether points stay
or move as they are nearest, or move as they are nearest in the subspace, without a target label.
"""

from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.optimize import minimize, nnls

from pvmincq_jax._checks import check_count, check_samples, check_seed, read_samples
from pvmincq_jax._distances import squared_distances
from pvmincq_jax._labels import class_names
from pvmincq_jax._samples import spread_rows
from pvmincq_jax._types import ArrayLike
from pvmincq_jax.adaptation.distance import LinearMap, judge_map, learn_map, some_rows, votes_in

__all__ = ["LabelShift", "Shift", "contradicted", "detect_shift", "label_shift"]

# Points of a domain that are looked at, 8 MB of distances; of a larger sample, so many are drawn.
_MOST_POINTS = 1000
# The p-value up to which an explanation is refused, by the points of the smaller domain: from so many on, this level.
_LEVELS = {0: 0.2, 100: 0.05, 300: 0.01}
# So many points refuse only what is so many standard deviations farther away than by chance: 280 draws of four tasks on
# which nothing but the ratio changes reach 4.2, and moons turned by 10 degrees have 8 or more.
_MANY, _BEYOND_CHANCE = 300, 5.0
# That up to which a subspace is, and draws of a test that only decides.
_LEVEL_OF_SUBSPACE, _DRAWS = 0.05, 100
# Points of a cell: enough to tell where it lies, few enough for one density.
_CELL, _MOST_CELLS, _STEPS = 16, 40, 10
# Points for each feature from which on a direction is looked for: among fewer, some looks unchanged by chance.
_POINTS_A_FEATURE = 50
# Directions of the plane that are looked at; and how many times the distance that equal samples have is too far.
_DIRECTIONS, _FAR = 72, 3.0
# The risk R_L from which on a subspace says nothing: unrelated votes contradict its own on half of the points, 2 R_L.
_TELLS_NOTHING = 0.25


class LabelShift(NamedTuple):
    """What `label_shift` returns.

    Attributes:
      shares: of the classes in the target, in the order of their sorted labels ``[c]``; their sum is 1.
      distance: the squared energy distance of that mixture from the target, in the units of the features.
      p_value: how often a target that is such a mixture is as far away; small where something else has changed, too.
      deviations: by how many standard deviations the distance exceeds the mean of targets that are such mixtures.
    """

    shares: np.ndarray
    distance: float
    p_value: float
    deviations: float = float("nan")


def label_shift(
    source: ArrayLike, source_labels: ArrayLike, target: ArrayLike, *, draws: int = 200, seed: int = 0
) -> LabelShift:
    """The class shares under which the source looks most like the target, and a test of whether all else is equal.

    The squared energy distance between the target T and a mixture of the source's classes S_c with shares p,

        D(p) = 2 sum_c p_c E|S_c - T| - sum_cd p_c p_d E|S_c - S_d| - E|T - T'|,

    is a convex quadratic of p. Its minimum over the simplex gives the shares. It is 0, up to the draw, if and only if
    the target is a mixture of the source's classes. The p-value is that of a bootstrap: the source's classes are drawn
    from themselves and a target from the mixture found, and the minimum is computed anew.

    No unlabelled sample tells more: where the classes themselves have changed so that the target looks like another
    mixture of them, the test does not reject, and the shares are wrong.

    Of a target of more than 1 000 points 1 000 are looked at, and of such a source at most 1 000 / c of each class.
    Host code; the order of the rows does not matter. Not in the paper.

    Args:
      source, source_labels, target: ``[m_s, d]``, ``[m_s]`` of two classes or more, and ``[m_t, d]``.
      draws: of the bootstrap.
      seed: of the bootstrap and of the points that are looked at.

    Returns: a `LabelShift`.

    Example:
      >>> rng = np.random.default_rng(0)
      >>> labels = np.repeat([-1, 1], 60)
      >>> source, target = rng.normal(labels, 0.5)[:, None], rng.normal(np.repeat([-1, 1], [100, 20]), 0.5)[:, None]
      >>> ratio, moved = label_shift(source, labels, target), label_shift(source, labels, target + 1)
      >>> print(ratio.shares.round(1), ratio.p_value > 0.05, moved.p_value < 0.05)
      [0.9 0.1] True True
    """
    source, target = read_samples(source=source, target=target)
    check_samples(source, target)
    classes, numbers = class_names("source_labels", source_labels, len(source))
    draws = check_count("draws", draws, 1)
    rng = np.random.default_rng(check_seed("seed", seed))
    source, target = np.asarray(source, float), np.asarray(target, float)
    most = len(source) if len(source) <= _MOST_POINTS else _MOST_POINTS // classes.size
    members = [np.flatnonzero(numbers == c) for c in range(classes.size)]
    rows = [some[some_rows(source[some], max(most, 1), rng)] for some in members]
    sizes, source = np.array([len(some) for some in rows]), source[np.concatenate(rows)]
    target = target[some_rows(target, _MOST_POINTS, rng)]

    # Row c of `mixture` weighs the points of class c to the sum of 1.
    mixture = np.repeat(np.eye(classes.size), sizes, axis=1) / sizes[:, None]
    within = np.sqrt(squared_distances(source, source))
    across = mixture @ np.mean(np.sqrt(squared_distances(source, target)), axis=1)
    spread = np.mean(np.sqrt(squared_distances(target, target)))
    shares, distance = _nearest(_gram(mixture @ within @ mixture.T, across, spread))

    drawn = [rng.multinomial(size, np.full(size, 1 / size), size=draws) / size for size in sizes]
    mixtures = np.repeat(np.eye(classes.size), sizes, axis=1) * np.concatenate(drawn, axis=1)[:, None]
    targets = rng.multinomial(np.shape(target)[0], shares @ mixture, size=draws) / np.shape(target)[0]
    both = np.concatenate([mixtures, targets[:, None]], axis=1)
    means = (both.reshape(-1, np.shape(source)[0]) @ within).reshape(both.shape) @ both.swapaxes(1, 2)
    again = np.array([_nearest(_gram(one[:-1, :-1], one[-1, :-1], one[-1, -1]))[1] for one in means])
    # Two draws of n points coincide once in n times, and two points of a domain never.
    again *= np.min(sizes) / max(np.min(sizes) - 1, 1)
    spread = np.std(again)
    deviations = float((distance - np.mean(again)) / spread) if spread > 0 else 0.0
    return LabelShift(shares, distance, float((1 + np.sum(again >= distance)) / (1 + draws)), deviations)


def _gram(classes: np.ndarray, across: np.ndarray, spread: float) -> np.ndarray:
    """G ``[c, c]`` with D(p) = p'Gp on the simplex, a Gram matrix, from mean distances.

    G_cd = E|S_c - T| + E|S_d - T| - E|S_c - S_d| - E|T - T'|, of the classes ``[c, c]``, of each class from the target
    ``[c]``, and of two points of the target.
    """
    return across[:, None] + across - classes - spread


def _nearest(gram: np.ndarray) -> tuple[np.ndarray, float]:
    """The shares of least distance D(p) = p'Gp, and that distance.

    They are the point of the convex hull of c vectors that is nearest to the origin. Least squares with x >= 0 of the
    vectors' mean to 0 and of the sum of x to 1 ends in the direction of p, whatever the sum is.
    """
    values, vectors = np.linalg.eigh(gram / (np.trace(gram) or 1.0))
    root = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
    solution, _ = nnls(np.vstack([root, np.ones(len(gram))]), np.append(np.zeros(len(gram)), 1.0))
    shares = solution / np.sum(solution)
    return shares, float(max(shares @ gram @ shares, 0.0))


class Shift(NamedTuple):
    """What `detect_shift` returns.

    Attributes:
      kind: "ratio", "covariate", "subspace" or "move".
      sentence: what has changed, and what is to be done.
      label_shift: of the classes, a `LabelShift`; for "subspace" that in the subspace.
      p_value: of the test that decided: for "ratio" and "covariate" that of the cells, for "subspace" that of the
        classes in it, for "move" the largest that was found.
      weights: of source points that stay ``[m_s]``, of mean 1: those of their cells, or 1 where the class ratio alone
        has changed; None where no weights of the cells explain the target.
      map: the subspace, a `LinearMap`; None unless the kind is "subspace".
      votes: of the subspace on the target points ``[m_t]`` in {-1, +1}; None likewise.
      risk: of these votes, R_L; NaN likewise.
    """

    kind: Literal["ratio", "covariate", "subspace", "move"]
    sentence: str
    label_shift: LabelShift
    p_value: float
    weights: np.ndarray | None = None
    map: LinearMap | None = None
    votes: np.ndarray | None = None
    risk: float = float("nan")


def detect_shift(source: ArrayLike, source_labels: ArrayLike, target: ArrayLike, *, seed: int = 0) -> Shift:
    """What has changed between two domains: see the text at the top of this module. Not in the paper.

    An explanation is refused at p = .01 and below if the target is also five standard deviations farther away than by
    chance; where a domain has fewer than 300 points, at .05, and fewer than 100, at .2. Few points seldom refuse
    anything, and the two errors are not alike: points that stay where they should move stay for good, and where they
    need not have moved the grid that is then learnt still holds the source as it is. Moons of 20 and 32 points, turned
    by 40 degrees, stay in 8 and 3 of 12 draws at .05, and in one and none at .2. Many points refuse what is wrong at
    any level, and what is right as often as the level says: once in a hundred times, but for that distance.

    A subspace is looked for with labels -1 and +1 alone, and 50 points of each domain or more for a feature.

    Args:
      source, source_labels, target: as in `label_shift`.
      seed: of the tests and of `pvmincq_jax.learn_map`.

    Returns: a `Shift`.

    Example:
      >>> rng = np.random.default_rng(0)
      >>> labels = np.repeat([-1, 1], 60)
      >>> source, target = rng.normal(labels, 0.5)[:, None], rng.normal(np.repeat([-1, 1], [100, 20]), 0.5)[:, None]
      >>> ratio, moved = detect_shift(source, labels, target), detect_shift(source, labels, target + 5)
      >>> print(ratio.kind, ratio.label_shift.shares.round(1), moved.kind)
      ratio [0.9 0.1] move
    """
    classes = label_shift(source, source_labels, target, seed=seed)
    source, labels, target = np.asarray(source, float), np.asarray(source_labels), np.asarray(target, float)
    cells = _cells(source, int(np.clip(len(source) // _CELL, 2, _MOST_CELLS)), seed)
    if np.max(cells) == 0:
        raise ValueError("source holds one point again and again: nothing can be told of what has changed")
    pieces = label_shift(source, cells, target, draws=_DRAWS, seed=seed)
    points = min(len(source), len(target))
    weights = None if _refused(pieces, points) else (pieces.shares / np.bincount(cells))[cells] * len(source)
    if weights is not None and not _refused(classes, points):
        sentence = f"nothing but the class ratio has changed (p = {classes.p_value:.2g}): nothing is moved"
        return Shift("ratio", sentence, classes, pieces.p_value, np.ones(len(source)))
    enough = points >= _POINTS_A_FEATURE * source.shape[1] > _POINTS_A_FEATURE
    subspace = None
    if enough and np.array_equal(np.unique(labels), (-1, 1)):
        subspace = _subspace(source, labels.astype(float), target, seed)
    if subspace is not None:
        linear, same, votes, risk = subspace
        sentence = (
            f"points have changed, but not in a subspace of rank {len(np.asarray(linear.matrix))} "
            f"(p = {same.p_value:.2g}), where the source has a risk of {risk:.2g}"
        )
        return Shift("subspace", sentence, same, same.p_value, weights, linear, votes, risk)
    if weights is not None:
        sentence = f"the same points as in the source have other shares (p = {pieces.p_value:.2g}): nothing is moved"
        return Shift("covariate", sentence, classes, pieces.p_value, weights)
    largest = max(classes.p_value, pieces.p_value)
    return Shift("move", f"points had to move (p = {largest:.2g})", classes, largest)


def _refused(test: LabelShift, points: int) -> bool:
    """Whether a test of samples of so many points refuses its explanation."""
    level = min(value for count, value in _LEVELS.items() if points >= count)
    return test.p_value <= level and (points < _MANY or test.deviations > _BEYOND_CHANCE)


def contradicted(shift: Shift, target_values: ArrayLike) -> np.ndarray:
    """Which votes contradict a subspace in which nothing has changed so often that they are worse than its vote.

    P_T(B(x) != B_L(x)) > 2 R_L, from which R_T(B) > R_L follows, by more than two standard errors of the difference.
    Not in the paper.

    Args:
      shift: of `detect_shift`.
      target_values: of votes on the target points ``[..., m_t]``.

    Returns: bool ``[...]``; False where there is no such subspace.

    Example:
      >>> nothing = LabelShift(np.array([0.5, 0.5]), 0.0, 1.0)
      >>> shift = Shift("subspace", "", nothing, 0.5, votes=np.repeat([1, -1], 100), risk=0.1)
      >>> contradicted(shift, np.stack([np.repeat([1, -1], [75, 125]), np.repeat([-1, 1], [175, 25])]))
      array([False,  True])
    """
    values = np.asarray(target_values)
    if shift.votes is None:
        return np.zeros(values.shape[:-1], bool)
    return _differ(values, shift.votes, 2 * shift.risk)


def _cells(points: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Numbers from 0 of the cells of a sample ``[m]``, by k-means, whatever the order of the rows."""
    centers = points[spread_rows(points, count, seed)]
    for _ in range(_STEPS):
        numbers = np.argmin(squared_distances(points, centers), axis=1)
        _, numbers = np.unique(numbers, return_inverse=True)
        sizes = np.bincount(numbers)
        centers = np.stack([np.bincount(numbers, column) / sizes for column in points.T], axis=1)
    return numbers


def _subspace(
    source: np.ndarray, labels: np.ndarray, target: np.ndarray, seed: int
) -> tuple[LinearMap, LabelShift, np.ndarray, float] | None:
    """Of the maps under which the ratio explains the target, that of least R_S + PV; and its votes, with their risk.

    In the plane, one direction in each valley of the distance between the domains; else where `learn_map` ends.
    Directions are coarse, or learnt from some of the points, and all of them tell a degree from the next: so each is
    brought to the nearest one of least distance before it is tested.

    Votes of risks R and R' differ on at most R + R' of the points. Among more than two features many directions look
    like the two classes, some the wrong way round: where those of two such maps differ on more, none is believed.
    """
    plane = source.shape[1] == 2
    maps = _valleys(source, labels, target) if plane else learn_map(source, labels, target, seed=seed).others
    believed: Any = None
    for linear, _, _ in maps:
        matrix = np.asarray(linear.matrix)
        if len(matrix) == 1:
            most = {"maxfev": 40 * matrix.shape[1]}
            nearest = minimize(_excess, matrix[0], (source, labels, target), "Nelder-Mead", options=most)
            if nearest.fun > _FAR:
                continue
            # The scale of the map stays: its kernels have their width in that unit.
            matrix = nearest.x[None] * np.std(source @ matrix[0]) / np.std(source @ nearest.x)
        same = label_shift(source @ matrix.T, labels, target @ matrix.T, draws=_DRAWS, seed=seed)
        if same.p_value <= _LEVEL_OF_SUBSPACE:
            continue
        votes, risk = votes_in(source, labels, target, LinearMap(matrix), same.shares)
        if risk >= _TELLS_NOTHING:
            continue
        if believed is None:
            believed = LinearMap(matrix), same, votes, risk
            if plane:
                break
        elif _differ(votes, believed[2], risk + believed[3]):
            return None
    return believed


def _differ(votes: np.ndarray, others: np.ndarray, most: float) -> np.ndarray:
    """Whether votes ``[..., m]`` differ from others on more than so large a share, by two standard errors ``[...]``."""
    share = np.mean(~(votes * others > 0), axis=-1)
    return share > most + 2 * np.sqrt((share * (1 - share) + most * (2 - most)) / len(others))


def _valleys(source: np.ndarray, labels: np.ndarray, target: np.ndarray) -> list[tuple[LinearMap, float, float]]:
    """Maps of rank 1 in the plane, at which `_excess` has a minimum over all directions; with R_S and PV of each."""
    turns = np.pi * np.arange(_DIRECTIONS) / _DIRECTIONS
    scale = np.sqrt((np.var(source, axis=0) + np.var(target, axis=0)) / 2)
    directions = np.stack([np.cos(turns), np.sin(turns)], axis=1) / np.where(scale > 0, scale, 1.0)
    heights = np.array([_excess(one, source, labels, target) for one in directions])
    low = (heights <= _FAR) & (heights <= np.roll(heights, 1)) & (heights < np.roll(heights, -1))
    covariance = (np.cov(source, rowvar=False) + np.cov(target, rowvar=False)) / 2
    maps = [LinearMap(one[None] / np.sqrt(2 * one @ covariance @ one)) for one in directions[low]]
    judged = [judge_map(one, source, labels, target) for one in maps]
    return sorted(judged, key=lambda one: one[1] + one[2])


def _excess(direction: np.ndarray, source: np.ndarray, labels: np.ndarray, target: np.ndarray) -> float:
    """The least D(p) of `label_shift` along a direction, in units of what it is between equal samples of these sizes.

    On a line the energy distance is twice the integral of (F - G)^2, F and G the distribution functions.
    """
    values = np.concatenate([source, target]) @ direction
    order = np.argsort(values, kind="stable")
    gaps = np.diff(values[order])
    sides = [np.append(labels == c, np.zeros(len(target), bool)) for c in np.unique(labels)]
    sides.append(np.arange(len(values)) >= len(source))
    steps = np.stack([np.cumsum(side[order])[:-1] / np.sum(side) for side in sides])
    apart = steps[:-1] - steps[-1]
    _, distance = _nearest(2 * (apart * gaps) @ apart.T)
    spread = 2 * np.sum(gaps * steps[-1] * (1 - steps[-1]))
    return distance / ((1 / len(source) + 1 / len(target)) * spread + np.finfo(float).tiny)
