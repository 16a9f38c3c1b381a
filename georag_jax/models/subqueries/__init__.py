"""Where sub-queries come from: a file, the question itself, or a language model behind a server."""

from georag_jax.models.subqueries._http import ServerError as ServerError
from georag_jax.models.subqueries.decompose import Decomposer as Decomposer
from georag_jax.models.subqueries.file import FileSubQueries as FileSubQueries
from georag_jax.models.subqueries.server import Report as Report
from georag_jax.models.subqueries.server import ServerSubQueries as ServerSubQueries

__all__ = ["Decomposer", "FileSubQueries", "Report", "ServerError", "ServerSubQueries"]
