"""Train Decima's network and write it with its log to a folder.

python scripts/train_decima.py [--config configs/train/decima.yaml] [--set minutes=5 ...] --out FOLDER
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import yaml
from pydantic import TypeAdapter, ValidationError

from dagsim.errors import DagsimError
from dagsim.experiment.decima import DecimaTraining, train_decima


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=Path("configs/train/decima.yaml"))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as workload.jobs=20")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    try:
        document = yaml.safe_load(args.config.read_text()) or {}
        for each in args.set:
            *path, last = each.partition("=")[0].split(".")
            place = document
            for name in path:
                place = place.setdefault(name, {})
            place[last] = yaml.safe_load(each.partition("=")[2])
        best = train_decima(TypeAdapter(DecimaTraining).validate_python(document), args.out)
    except (OSError, yaml.YAMLError, ValidationError, DagsimError) as error:
        print(error, file=sys.stderr)
        return 2
    print(best)
    return 0


if __name__ == "__main__":
    sys.exit(main())
