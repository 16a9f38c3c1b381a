"""One batch over several processes (``jax.distributed``): each selects its share on its own devices."""

import jax
import numpy as np
from jax.experimental import multihost_utils

from georag_jax._errors import require
from georag_jax.documents import Selection


def process_share(count: int, index: int | None = None, processes: int | None = None) -> slice:
    """The rows of a batch that fall to this process: consecutive, and as even as can be.

    Args:
        count: queries in the whole batch, >= 0.
        index: of this process; default: JAX's.
        processes: how many there are; default: JAX's.

    Raises:
        ValueError: a negative count, or an index that is not below the number of processes.

    >>> process_share(10, 1, 4)
    slice(3, 6, None)
    """
    index = jax.process_index() if index is None else index
    processes = jax.process_count() if processes is None else processes
    require(count >= 0, "count", "a number >= 0", count)
    require(0 <= index < processes, "index", f"a number in 0..{processes - 1}", index)
    each, more = divmod(count, processes)
    start = each * index + min(index, more)
    return slice(start, start + each + (index < more))


def gather_selections(share: Selection) -> Selection:
    """The whole batch's selection, on every process, from the shares of all; every process has to call it.

    Each share is what ``select`` returned for the rows of ``process_share``; ``demand`` and ``quality`` are as wide as
    the widest.

    >>> gather_selections(Selection(*[np.zeros((2, 3))] * 9)).indices.shape  # one process: nothing to fetch
    (2, 3)
    """
    if jax.process_count() == 1:
        return share
    widths = np.array([len(share.indices), share.demand.shape[1], share.quality.shape[1]])
    everyone = np.asarray(multihost_utils.process_allgather(widths))
    rows, K, m = everyone.max(0)
    widest = {"demand": K, "quality": m}
    joined = []
    for name, field in share._asdict().items():
        if field is None:
            joined.append(None)
            continue
        out = np.zeros((rows, *((widest[name],) if name in widest else field.shape[1:])), field.dtype)
        out[tuple(slice(n) for n in field.shape)] = field
        parts = np.asarray(multihost_utils.process_allgather(out))
        joined.append(np.concatenate([part[: n[0]] for part, n in zip(parts, everyone, strict=True)]))
    return Selection._make(joined)
