"""Algorithm 3, section 3.4 and section 5: votes for a domain without labels, and their choice without labels.

- `grid`: the one engine that solves MinCq over folds, radii, gammas, classes and margins
- `options`: what a grid is made with
- `seats`: who learns in which fold, where Gaussian voters sit, and how many
- `model`, `learn`: a vote, its values at new points and its file; how it is learnt, or taken from a grid
- `label`, `sweeps`, `labelled`: PV-MinCq, the form that carries labels to the target, at one point and over a grid
- `own`: one domain, on which the grid is MinCq's cross-validation
- `transport`, `moves`, `transport_sweeps`, `moved_grid`: the form that moves source points to the target, its maps, and
  the grid of votes on them
- `criteria`, `moved_criteria`, `choice`, `validate`: what a point of the grid is chosen by, and fits that choose
- `committee`, `ratio`, `shift`: the best part of a grid votes; the class ratio of the target, and what else has changed
- `classes`, `class_grids`: more than two classes, each against the rest, and one choice for all
- `resampling`: cross-validation and reverse validation of any method
- `views`, `view_validation`: several descriptions of the same objects, or given classifiers
- `distance`, `points`: a learned distance, and which source points matter
"""
