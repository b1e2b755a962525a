"""``python -m dagsim`` is ``dagsim``."""

from dagsim.cli import main

main()
