"""``python -m dagsim`` runs the command ``dagsim``."""

from dagsim.cli import main

main()
