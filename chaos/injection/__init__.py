"""How faults work: the proxies of links, and the library that stands between a node and its system."""
