"""Algorithm 3, section 3.4 and section 5: votes for a domain without labels, and their choice without labels.

- `grid`: the one engine that solves MinCq over folds, radii, gammas, classes and margins
- `sweeps`: a grid of votes of either form, and what it is learnt from
- `model`: a vote, how it is learnt or taken from a grid, its values at new points and its file
- `label`: PV-MinCq, the form that carries labels to the target, at one point and over a grid; one domain
- `transport`, `transport_sweeps`: the form that moves source points to the target: its maps, and votes on them
- `criteria`, `transport_criteria`: what a point of a grid is chosen by
- `choice`, `validate`: the best point, or a committee of the best; fits that choose
- `shift`: the class ratio of the target, and what else has changed
- `views`: several descriptions of the same objects, or given classifiers
- `distance`: a learned distance
"""
