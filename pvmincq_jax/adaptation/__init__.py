"""Algorithm 3, section 3.4 and section 5: votes for a domain without labels, and their choice without labels.

- `sweeps`: a grid of votes of either form, and what it is learnt from
- `options`: checks of what sweeps and fits are given
- `model`, `files`: a vote, its values at new points and its file
- `label`: PV-MinCq, the form that carries labels to the target, at one point and over a grid; one domain; given votes
- `transport`, `transport_sweeps`: the form that moves source points to the target: its maps, and votes on them
- `criteria`, `transport_criteria`: what a point of a grid is chosen by
- `choice`, `validate`: the vote at any point of a grid, at the best, or a committee of the best; fits that choose
- `shift`: the class ratio of the target, and what else has changed
- `views`: several descriptions of the same objects
- `distance`: a learned distance
"""
