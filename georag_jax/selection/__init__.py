"""The public array API: ``select`` and ``reverse_validation``, and a batch's shares where there are many processes."""

from georag_jax.selection.api import reverse_validation as reverse_validation
from georag_jax.selection.api import select as select
from georag_jax.selection.processes import gather_selections as gather_selections
from georag_jax.selection.processes import process_share as process_share
