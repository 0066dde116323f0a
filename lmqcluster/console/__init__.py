"""The web console: static files that run in the browser and request all data from the node that served them."""
