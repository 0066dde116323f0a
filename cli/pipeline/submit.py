"""The file that ``spark-submit`` runs: it takes a file, not a module, so this one belongs to no package."""

from __future__ import annotations

from lmqcluster_cli.pipeline.program import main  # the installed name of this package

if __name__ == "__main__":
    main()
