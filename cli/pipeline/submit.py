"""What ``spark-submit`` runs: it takes a file, not a module, so that this one does not belong to a package."""

from __future__ import annotations

from lmqcluster_cli.pipeline.program import main  # installed under another name than it has here

if __name__ == "__main__":
    main()
