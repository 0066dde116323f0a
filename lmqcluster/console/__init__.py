"""The web console: static files that run in the browser and ask the node they came from for everything they show."""
