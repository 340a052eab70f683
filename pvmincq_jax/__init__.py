"""PV-MinCq in JAX: weighted majority votes of least C-bound, adapted to a domain without labels.

Pure functions on arrays; results are NamedTuples that are pytrees. Each module lists its public names in ``__all__``,
and they are all reachable from here, except for the scikit-learn faces in `pvmincq_jax.estimators`.
"""

from pvmincq_jax._types import *
from pvmincq_jax.bounds import *
from pvmincq_jax.cbound import *
from pvmincq_jax.curve import *
from pvmincq_jax.factor import *
from pvmincq_jax.matching import *
from pvmincq_jax.metric import *
from pvmincq_jax.mincq import *
from pvmincq_jax.pac_bayes import *
from pvmincq_jax.pvmincq import *
from pvmincq_jax.resampling import *
from pvmincq_jax.scaling import *
from pvmincq_jax.selflabel import *
from pvmincq_jax.shared import *
from pvmincq_jax.sizes import *
from pvmincq_jax.softmatching import *
from pvmincq_jax.sweep import *
from pvmincq_jax.transport import *
from pvmincq_jax.transport_sweep import *
from pvmincq_jax.validation import *
from pvmincq_jax.view_validation import *
from pvmincq_jax.views import *
from pvmincq_jax.voters import *

__version__ = "0.1.0"
