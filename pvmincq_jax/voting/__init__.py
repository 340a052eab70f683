"""Section 2: voters, the C-bound, and MinCq. One function for each equation, which works under jit, vmap and grad;
`centers`, `classes`, `batch`, `grid` and small samples (`factor`) are host code.

- `voters`, `families`, `centers`: h_j(x), the voters as functions of arrays, families of them as values, and the points
  that they sit on
- `cbound`: equation 1, theorem 2 and equation 4: margins, moments, risks, disagreement
- `factor`: the low-rank factor of a vote matrix, shared by every MinCq over the same voters; small samples with the
  moments of a larger one; factorisations under vmap
- `qp`: the box-constrained quadratic program, its scaling, and jaxopt's solver
- `interior_point`, `newton`: our solver: its loop, and two ways to solve the linear systems of a step
- `derivatives`: those of a solution, of every order
- `mincq`, `program`: Algorithm 1, equations 5 to 7: the public function, and the program on checked arrays (`learn`)
- `classes`: labels of more than two classes, each against the rest
- `box_qp`: the quadratic program by itself, for any factor
- `rounding`: scales and roundings that the solver has to know of
- `batch`, `programs`, `grid`: many problems by few compiled programs, which are kept; MinCq over folds, radii, gammas,
  classes and margins
"""
