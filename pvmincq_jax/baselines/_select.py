"""The validations under the names that the comparison methods use."""

from pvmincq_jax._folds import fold_numbers
from pvmincq_jax.resampling import cross_validation, first_best, reverse_validation, rs_pv_validation

__all__ = ["choose", "cross_validation", "fold_numbers", "reverse_validation", "rs_pv_validation"]

choose = first_best
