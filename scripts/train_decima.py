"""Train Decima's network and write it with its log to a folder: ``dagsim decima train`` as a script.

python scripts/train_decima.py [--config results/decima/w1.yaml] [--set minutes=5 ...] --out FOLDER
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dagsim.errors import DagsimError
from dagsim.experiment.decima import load_training, train_decima


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, help="as results/decima/w1.yaml")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as workload.jobs=20")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    try:
        print(train_decima(load_training(args.config, args.set), args.out))
    except DagsimError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
