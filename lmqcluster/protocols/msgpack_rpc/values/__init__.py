"""Arguments and results: checked, converted, encoded."""
