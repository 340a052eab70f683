"""The methods that the paper compares with, one file each, in one functional form.

Every file has ``fit(source, source_labels, target, params, seed) -> model``, ``decision(model, x) -> [m]``, ``GRID``,
the list of its parameters ordered from the smoothest model to the most flexible, and ``VALIDATION``, how the paper
tunes it: "cross" (5-fold cross-validation on the source), "reverse" (reverse 5-fold validation) or "rs_pv" (R_S + PV).

These are host functions in float64: they check their input, raise ValueError, and return NumPy arrays. Rows are put
into one canonical order on entry, so permuting source or target changes nothing, and the seed fixes every bit.
Nothing here is imported by ``import pvmincq_jax``; the files on scikit-learn's SVC need ``pvmincq-jax[sklearn]``.
"""

__all__: list[str] = []
