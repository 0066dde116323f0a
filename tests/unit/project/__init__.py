"""The repository itself: documents, structure, pinned versions."""
