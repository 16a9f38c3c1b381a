"""The command line: ``georag demo | index | select | ask | answer | evaluate | models``.

Exit codes: 0 done; 1 the work failed; 2 wrong arguments or input; 130 interrupted.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from georag_jax._errors import MissingExtraError

COMMANDS = ("demo", "index", "select", "ask", "answer", "evaluate", "models")
RESUMABLE = ("index", "select", "answer")


def parser() -> argparse.ArgumentParser:
    """The argument parser with all commands; builds without importing any heavy package."""
    from georag_jax import __version__

    top = argparse.ArgumentParser(prog="georag", description="Choose the retrieved chunks that cover a question.")
    top.add_argument("--version", action="version", version=f"georag-jax {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in COMMANDS:
        module = import_module(f"georag_jax.cli.{name}")
        summary = (module.__doc__ or "").splitlines()[0]
        own = commands.add_parser(
            name, help=summary.replace("%", "%%"), description=module.__doc__, formatter_class=_Formatter
        )
        module.add_arguments(own)
        own.set_defaults(run=module.run)
    return top


class _Formatter(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    pass


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    options = parser().parse_args(arguments)
    try:
        options.run(options)
    except (ValueError, FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        return _fail(error, 2)
    except (MissingExtraError, RuntimeError, OSError) as error:
        return _fail(error, 1)
    except KeyboardInterrupt:
        hint = "; the same command goes on where it stopped" if options.command in RESUMABLE else ""
        print(f"georag: interrupted{hint}", file=sys.stderr)
        return 130
    return 0


def _fail(error: BaseException, code: int) -> int:
    print(f"georag: {error}", file=sys.stderr)
    return code
