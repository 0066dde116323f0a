"""Published memcache clients against any node."""

from __future__ import annotations

import memcache
from pymemcache.client.base import Client

from .cluster import Cluster
from .kestrel_ports import TIMEOUT_S, address_of


def test_python_memcached(shared_cluster: Cluster, queue_name: str) -> None:
    servers = ["{}:{}".format(*address_of(node, "memcache")) for node in shared_cluster]
    producer, consumer = (memcache.Client([server], socket_timeout=TIMEOUT_S) for server in servers[:2])
    try:
        assert producer.set(queue_name, b"one")
        assert producer.set(queue_name, b"two")
        assert consumer.get(f"{queue_name}/open") == b"one"
        assert consumer.get(f"{queue_name}/abort") is None
        assert consumer.get(f"{queue_name}/t=100/close/open") == b"one"
        assert consumer.get(f"{queue_name}/t=100/close/open") == b"two"
        assert consumer.get(f"{queue_name}/t=100/close/open") is None
        assert consumer.delete(queue_name)
    finally:
        producer.disconnect_all()
        consumer.disconnect_all()


def test_pymemcache(shared_cluster: Cluster, queue_name: str) -> None:
    producer = Client(address_of(shared_cluster[2], "memcache"), timeout=TIMEOUT_S)
    consumer = Client(address_of(shared_cluster[0], "memcache"), timeout=TIMEOUT_S)
    try:
        assert producer.set(queue_name, b"one", noreply=False)
        # By default it requests no answer.
        producer.set(queue_name, b"two")
        assert producer.get(queue_name) == b"one"
        said = consumer.raw_command(f"get {queue_name}/t=60000/open", "END\r\n")
        assert said == b"VALUE %b 0 3\r\ntwo\r\n" % queue_name.encode()
        assert consumer.raw_command(f"get {queue_name}/close") == b"END"
        assert producer.delete(queue_name, noreply=False)
        assert producer.stats()[b"version"]
    finally:
        producer.close()
        consumer.close()
