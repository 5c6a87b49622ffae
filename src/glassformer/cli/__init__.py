"""The command ``glassformer``: a file a verb, and the only place that prints."""

__all__ = ["console_main", "main"]


def console_main() -> None:
    """``main`` as the program of a process of its own, which ends sooner (``end_with_code``)."""
    try:
        main()
    except SystemExit as end:
        from glassformer.cli.process import end_with_code

        end_with_code(int(end.code or 0))
        raise


def main() -> None:
    """Run one command. Ctrl-C exits with code 130 from here on, also while commands are imported.

    Earlier, while Python itself starts, no code of this package can catch it.
    """
    try:
        from glassformer.cli.process import interrupt_where_it_can_be, shorten_waiting, silence_torch_warnings

        interrupt_where_it_can_be()
        shorten_waiting()
        silence_torch_warnings()
        from glassformer.cli.app import main as run_verb

        run_verb()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
