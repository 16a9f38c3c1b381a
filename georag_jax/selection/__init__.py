"""The public array API: ``select`` and ``reverse_validation``."""

from georag_jax.selection.api import reverse_validation as reverse_validation
from georag_jax.selection.api import select as select
