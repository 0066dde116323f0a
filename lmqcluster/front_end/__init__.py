"""The program of a front-end process: it accepts clients, does their TLS and relays their bytes to the node's process."""
