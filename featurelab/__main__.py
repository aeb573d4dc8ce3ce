"""The `featurelab` command, also as `python -m featurelab`: its first step is to check that its packages are there."""

import sys

from featurelab import _lab


def command() -> None:
    """Run the command. Without the extra `lab`, say in one line what to install and exit with status 2."""
    try:
        _lab.require("the command")
    except ModuleNotFoundError as error:
        print(f"featurelab: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    from featurelab.pipelines.engine.command.cli import script

    script()


if __name__ == "__main__":
    command()
