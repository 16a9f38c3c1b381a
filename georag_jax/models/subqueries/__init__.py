"""Where sub-queries come from: a file, the question itself, or a language model; and sources made of these."""

from georag_jax.models.subqueries._draft import Report as Report
from georag_jax.models.subqueries.decompose import Decomposer as Decomposer
from georag_jax.models.subqueries.file import FileSubQueries as FileSubQueries
from georag_jax.models.subqueries.generated import GeneratedSubQueries as GeneratedSubQueries
from georag_jax.models.subqueries.joined import GuardedSubQueries as GuardedSubQueries
from georag_jax.models.subqueries.joined import JoinedSubQueries as JoinedSubQueries
from georag_jax.models.subqueries.joined import NearestSubQueries as NearestSubQueries
from georag_jax.models.subqueries.prompt import RESPONSE_FORMAT as RESPONSE_FORMAT
from georag_jax.models.subqueries.rounds import TwoRoundSubQueries as TwoRoundSubQueries

__all__ = [
    "RESPONSE_FORMAT",
    "Decomposer",
    "FileSubQueries",
    "GeneratedSubQueries",
    "GuardedSubQueries",
    "JoinedSubQueries",
    "NearestSubQueries",
    "Report",
    "TwoRoundSubQueries",
]
