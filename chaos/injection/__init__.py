"""The implementation of faults: the proxies of links, and the library between a node and its system."""
