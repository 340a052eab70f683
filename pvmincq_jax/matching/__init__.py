"""Algorithm 2: who is within reach of whom, maximum matchings, and the perturbed variation. Host code, outside jit.

- `space`, `graph`: two samples, a distance, and the pairs within a radius
- `matching`: random maximum matchings, and PV
- `curve`: PV as a function of the radius, the bottleneck radius, and radii at levels of PV
- `points`: how often a point is matched (section 5), where its partners lie, and samples made even
- `selflabel`: labels carried over a matching (section 3.2), or by nearest neighbours

One module is traced code: `soft`, smooth counterparts of the matching by Sinkhorn's iteration, for gradients.
"""
