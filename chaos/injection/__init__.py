"""The implementation of faults: the proxies of links, and the preloaded library that intercepts system calls."""
