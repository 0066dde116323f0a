"""The process that Spark starts in place of Python, see `forked_python`. It imports almost nothing."""

from __future__ import annotations

import json
import os
import socket
import sys


def main() -> int:
    """Request a forked process, and exit with its status."""
    address, *arguments = sys.argv[1:]
    request = {"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd()}  # noqa: PTH109  pathlib takes long to import
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 19)
        server.connect(address)
        socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2])
        os.close(0)
        answer = server.recv(64)
    return int(answer or 1)


if __name__ == "__main__":
    sys.exit(main())
