"""Algorithm 2: who is within reach of whom, maximum matchings, and the perturbed variation. Host code, outside jit.

- `space`, `graph`: two samples, a distance, and the pairs within a radius
- `matching`: random maximum matchings, and PV
- `growth`: one matching that grows with the radius, and the exact radius of each number of pairs
- `curve`: PV as a function of the radius, the bottleneck radius, and radii at levels of PV
- `selflabel`: labels carried over a matching (section 3.2), or by nearest neighbours; where partners lie, and how often
  a point has any (section 5)

One module is traced code: `soft`, smooth counterparts of the matching by Sinkhorn's iteration, for gradients.
"""
