"""HTTP answers: layout, JSON, problems, long lists in slices."""
