"""``python -m glassformer`` is the command ``glassformer``."""

from glassformer.cli import console_main

if __name__ == "__main__":
    console_main()
