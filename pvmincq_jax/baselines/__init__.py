"""The methods that the paper compares with (section 4), one file each, in one functional form.

    fit(source, source_labels, target, params, seed=0) -> model     learns
    fit_grid(source, source_labels, target, grid, seed=0) -> list   the same for many params, faster
    decision(model, x) -> [m]                                       values at new points, whose sign is the class
    GRID                                                            params to choose from, the smoothest model first
    VALIDATION                                                      how the paper chooses: "cross" or "reverse" 5-fold
                                                                    validation, or "rs_pv" (R_S + PV)

- source: ``[m_s, d]``; source_labels: ``[m_s]`` in {-1, +1}, or in ``fit_grid`` ``[g, m_s]``, a row for each params
- target: ``[m_t, d]``, without labels; SVM and MinCq learn from the source alone and only check it
- params: the method's NamedTuple, or a mapping of its fields; grid: a list of these ``[g]``
- seed: of what a method draws at random; most draw nothing

These are host functions in float64: they check their input, raise ValueError, and return NumPy arrays. Rows are put
into one canonical order on entry, so permuting source or target changes nothing, and the seed fixes every bit.
Nothing here is imported by ``import pvmincq_jax``; the files on scikit-learn's SVC need the extra ``[sklearn]``.

A further method is one file with these names (`svm` is the shortest), and a row in ``experiments.run.methods.METHODS``.
"""

__all__: list[str] = []
