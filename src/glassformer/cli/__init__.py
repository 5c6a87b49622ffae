"""The command ``glassformer``: a file a verb, and the only place that prints."""

import sys

__all__ = ["console_main", "main"]


def console_main() -> None:
    """``main`` as the program of this process, which starts and ends sooner (``own_process``)."""
    is_program = sys._getframe(1).f_globals is vars(sys.modules["__main__"])  # not if run by another program
    _run(owned=is_program)


def main() -> None:
    """Run one command. Ctrl-C exits with code 130 from here on, also while commands are imported.

    Earlier, while Python itself starts, no code of this package can catch it.
    """
    _run(owned=False)


def _run(owned: bool) -> None:
    try:
        from glassformer.cli.process import (
            interrupt_where_it_can_be,
            own_process,
            shorten_waiting,
            silence_torch_warnings,
        )

        if owned:
            own_process()
        interrupt_where_it_can_be()
        shorten_waiting()
        silence_torch_warnings()
        from glassformer.cli.app import main as run_verb

        run_verb()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
