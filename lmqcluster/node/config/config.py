"""The configuration of a node: every option with its unit, its default and the effect of extreme values.

`NodeConfig` is the only list of options: flags, environment variables, keys of the TOML file, ``--help`` and the
list of docs/configuration.md are derived from its fields. `load` reads the sources.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from ...wire.address import Address
from ...wire.attributes import ATTRIBUTE_BYTES_MAX
from ...wire.limits import MESSAGE_BYTES_MAX
from . import values
from .attention import AttentionOptions
from .config_error import ConfigError
from .kestrel import KESTREL_PORTS, KestrelOptions, has_thrift
from .option import Option, option
from .sqs import SqsOptions
from .statsd import StatsdOptions
from .traces import TraceOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FRONT_ENDS_MAX", "OPTIONS", "Address", "NodeConfig", "Option"]

SECRET_BYTES_MIN: Final = 16
NAME_CHARACTERS_MAX: Final = 100
FRONT_ENDS_MAX: Final = 64
_TIMES_AND_COUNTS: Final = (
    "connections_per_client_max",
    "request_seconds_max",
    "idle_seconds_max",
    "http_idle_seconds_max",
    "event_journal_files_max",
)
MEMORY_BYTES_MIN: Final = 64 * 1024 * 1024
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
LOG_FORMATS: Final = ("auto", "human", "json")
EVENT_FILE_BYTES_MIN: Final = 64 * 1024
_ATTRIBUTE_BYTES_MOST: Final = 1024 * 1024
RAFT_TLS: Final = ("required", "optional")
DURABILITIES: Final = ("disk", "process", "memory")


@dataclass(frozen=True, kw_only=True)
class NodeConfig(AttentionOptions, KestrelOptions, SqsOptions, StatsdOptions, TraceOptions):
    """The settings of a node. An instance has passed `validate`.

    Raises:
        ConfigError: the values are invalid or conflict.
    """

    name: str = field(
        default_factory=lambda: f"lmq@{socket.gethostname()}",
        metadata=option(
            values.text,
            "Name of the node, shown in logs, status and statistics.",
            extremes="At most 100 characters. Nodes with the same name work but look the same.",
            metavar="NAME",
            default="lmq@ and the host name",
        ),
    )
    data_dir: Path = field(
        default=Path("var/lmq"),
        metadata=option(
            values.path,
            "Directory of the node's files; created if absent. Each node needs a separate one.",
            extremes="A second node in the same directory does not start.",
            metavar="DIR",
            default="var/lmq",
        ),
    )
    peers: tuple[Address, ...] = field(
        default=(),
        metadata=option(
            values.addresses,
            "Raft addresses of all founding members; the node's own address is optional. Without it a fresh node "
            "is a cluster of one, which other nodes can join.",
            extremes="Every founding member must name the same nodes, each once; otherwise the cluster does not form, and "
            "lmq-admin check reports the reason. The lists may use different addresses for a node. More than "
            "seven members slow every write down.",
            metavar="ADDR,ADDR,...",
            default="none",
        ),
    )
    await_join: str = field(
        default="off",
        metadata=option(
            values.choice("on", "off"),
            "on for a fresh node that will join a cluster: it refuses clients until it has joined. off: without "
            "peers it forms a cluster of one.",
            extremes="A node that already belongs to a cluster ignores this option.",
            metavar="SWITCH",
            default="off",
        ),
    )
    http: Address | None = field(
        default=Address("127.0.0.1", 9980),
        metadata=option(
            values.address_or_off,
            "Address of the HTTP interface, or off.",
            extremes="0.0.0.0 listens on all interfaces. Clients on other machines need a token: see Access control.",
            metavar="ADDR",
            default="127.0.0.1:9980",
        ),
    )
    http_hosts: tuple[str, ...] = field(
        default=(),
        metadata=option(
            values.hosts,
            "Further host names of the HTTP interfaces that the node accepts while no token is needed. It always "
            "accepts localhost, loopback addresses, and the hosts of http, queued, sqs and advertise_raft.",
            extremes="Requests for other hosts fail with 421, which keeps web pages from using the node. An attacker who "
            "controls the DNS of a name given here controls the node.",
            metavar="HOST,HOST,...",
            default="none",
        ),
    )
    rpc: Address | None = field(
        default=Address("127.0.0.1", 18800),
        metadata=option(
            values.address_or_off,
            "Address of the MessagePack-RPC interface, or off.",
            extremes="As for http.",
            metavar="ADDR",
            default="127.0.0.1:18800",
        ),
    )
    queued: Address | None = field(
        default=None,
        metadata=option(
            values.address_or_off,
            "Address of the HTTP interface for clients of queued, or off; these clients expect port 3333.",
            extremes="As for http.",
            metavar="ADDR",
            default="off",
        ),
    )
    raft: Address | None = field(
        default=Address("127.0.0.1", 19980),
        metadata=option(
            values.address_or_off,
            "Address on which peers connect, or off for a cluster of one that no node can join.",
            extremes="Beyond loopback a cluster secret or raft_tls_ca is required. Port 0 is an error, because peers must "
            "know the port.",
            metavar="ADDR",
            default="127.0.0.1:19980",
        ),
    )
    advertise_raft: Address | None = field(
        default=None,
        metadata=option(
            values.address,
            "Raft address that peers dial, if it differs from the listening address (0.0.0.0, containers, NAT). "
            "It identifies the node in the cluster.",
            extremes="If peers cannot reach it, the node finds no leader.",
            metavar="ADDR",
            default="the value of raft",
        ),
    )
    durability: str = field(
        default="disk",
        metadata=option(
            values.choice(*DURABILITIES),
            "What a majority of the nodes has done with a write before it is acknowledged: disk, synced it to "
            "disk; process, handed it to the operating system; memory, stored it in memory.",
            extremes="Acknowledged writes are lost when a majority of the nodes loses power at the same time (process) or "
            "stops at the same time (memory).",
            metavar="MODE",
            default="disk",
        ),
    )
    cluster_secret: str | None = field(
        default=None,
        repr=False,
        metadata=option(
            values.text,
            "Secret shared by all nodes of the cluster. Peers prove that they know it before a node reads "
            "anything else, and encrypt their traffic with keys derived from it. A flag is visible in the process"
            " list: prefer the environment or a file.",
            extremes="At least 16 random bytes (openssl rand -hex 32). Without it or raft_tls_ca, Raft is confined to "
            "loopback and a cluster of several nodes cannot have tokens.",
            metavar="TEXT",
            default="none",
        ),
    )
    cluster_secret_file: Path | None = field(
        default=None,
        metadata=option(
            values.path,
            "File that contains the cluster secret; surrounding white space is ignored.",
            extremes="Giving both a secret and a file is an error.",
            metavar="FILE",
            default="none",
        ),
    )
    admin_token_file: Path | None = field(
        default=None,
        metadata=option(
            values.path,
            "File that contains a token with all permissions on this node, which can create the first tokens of "
            "the cluster; surrounding white space is ignored. Read again when it changes.",
            extremes="At least 16 bytes. With it, clients on the node's own machine need a token too.",
            metavar="FILE",
            default="none",
        ),
    )
    tls_cert: Path | None = field(
        default=None,
        metadata=option(
            values.path,
            "File with the certificate of the client ports in PEM, followed by its intermediate certificates. "
            "With it HTTP and MessagePack-RPC accept only TLS 1.2 or newer. Read again when it changes.",
            extremes="Needs tls_key. Clients refuse an expired certificate: watch the metric "
            "lmq_tls_certificate_expiry_seconds.",
            metavar="FILE",
            default="none",
        ),
    )
    tls_key: Path | None = field(
        default=None,
        metadata=option(
            values.path,
            "File with the private key of tls_cert in PEM, without a password. Read again when it changes.",
            extremes="A reader of this file can impersonate the node.",
            metavar="FILE",
            default="none",
        ),
    )
    tls_client_ca: Path | None = field(
        default=None,
        metadata=option(
            values.path,
            "File with the certificate of an authority. Clients must present a certificate of that authority in "
            "addition to their token. Read at the start only.",
            extremes="A client without a certificate gets no answer, not even from /livez.",
            metavar="FILE",
            default="none",
        ),
    )
    raft_tls_ca: Path | None = field(
        default=None,
        metadata=option(
            values.path,
            "File with the certificate of the authority of the cluster's nodes. Peers then use TLS 1.3, and both "
            "sides present a certificate of that authority that is marked as a node's (lmq-admin tls init). Read "
            "again when it changes.",
            extremes="Needs raft_tls_cert and raft_tls_key, or tls_cert and tls_key. Nodes without it can no longer be "
            "peers.",
            metavar="FILE",
            default="none",
        ),
    )
    raft_tls_cert: Path | None = field(
        default=None,
        metadata=option(
            values.path,
            "File with the certificate that this node presents to its peers, in PEM. Read again when it changes.",
            extremes="Peers refuse an expired certificate.",
            metavar="FILE",
            default="the value of tls_cert",
        ),
    )
    raft_tls_key: Path | None = field(
        default=None,
        metadata=option(
            values.path,
            "File with the private key of raft_tls_cert, in PEM and without a password. Read again when it changes.",
            extremes="A reader of this file can impersonate the node.",
            metavar="FILE",
            default="the value of tls_key",
        ),
    )
    raft_tls: str = field(
        default="required",
        metadata=option(
            values.choice(*RAFT_TLS),
            "Use of TLS between peers if raft_tls_ca is given: required, or optional while a cluster changes over.",
            extremes="optional is not secure: an attacker in the network path can downgrade peers to plain TCP.",
            metavar="MODE",
            default="required",
        ),
    )
    admin_token: bytes | None = field(default=None, repr=False, compare=False)
    """The content of ``admin_token_file``."""
    message_bytes_max: int = field(
        default=MESSAGE_BYTES_MAX,
        metadata=option(
            values.size,
            "Largest body of one message, in bytes or with KiB, MiB, GiB. The node refuses a larger push.",
            extremes="1 to 64MiB. Large messages delay small ones.",
            metavar="SIZE",
            default="64MiB",
        ),
    )
    attribute_bytes_max: int = field(
        default=ATTRIBUTE_BYTES_MAX,
        metadata=option(
            values.size,
            "Most bytes of the attributes of one message, names and values. The node refuses a message with more. On the "
            "SQS port, attributes count to the size of the message instead.",
            extremes="At most 1MiB. Unlike large bodies, attributes of messages with a priority, a delay, a group or a "
            "label stay in memory.",
            metavar="SIZE",
            default="10KiB",
        ),
    )
    connections_per_client_max: int = field(
        default=4000,
        metadata=option(
            values.count,
            "Maximum connections of one client, which is an IPv4 address or an IPv6 /64, on each client port. At "
            "the limit the node closes the client's oldest unauthenticated connection in favour of a new one; if "
            "there is none, it closes the new one, over HTTP after an answer.",
            extremes="At least 1. Clients behind one NAT or proxy share an address. A port accepts 10,000 connections in "
            "total, or fewer if the limit of open files is lower.",
            metavar="COUNT",
            default="4000",
        ),
    )
    requests_per_client_max: int = field(
        default=0,
        metadata=option(
            values.count,
            "Maximum requests per second of one client address on each client port; 0 for no limit. The node "
            "refuses further ones: over HTTP with 429 and Retry-After, over MessagePack-RPC as overloaded.",
            extremes="Refusals cost the node work too. The Python clients switch to another node.",
            metavar="COUNT",
            default="0",
        ),
    )
    front_ends: int = field(
        default=0,
        metadata=option(
            values.count,
            "Number of processes that accept clients and do their TLS, so that the node uses more cores; 0 for none.",
            extremes="At most one less than the cores. Each takes about 40 MiB.",
            metavar="COUNT",
            default="0",
        ),
    )
    request_seconds_max: int = field(
        default=30,
        metadata=option(
            values.count,
            "Seconds within which a request must arrive, plus one for each 64 KiB of it; then the node closes the"
            " connection. It also closes it after 5 s without a byte of an unfinished MessagePack-RPC request, "
            "and if an HTTP head is incomplete after 5 s.",
            extremes="At least 1. If it is too low, large messages fail on slow networks.",
            metavar="SECONDS",
            default="30",
        ),
    )
    idle_seconds_max: int = field(
        default=3600,
        metadata=option(
            values.count,
            "Seconds without a request after which the node closes a MessagePack-RPC connection, unless a pull "
            "waits. It closes any unauthenticated connection after 10 s or request_seconds_max, whichever is shorter.",
            extremes="At least 1. The Python clients reconnect when needed.",
            metavar="SECONDS",
            default="3600",
        ),
    )
    http_idle_seconds_max: int = field(
        default=5,
        metadata=option(
            values.count,
            "Seconds without a request after which the node closes an HTTP connection. Set it a few seconds above the "
            "time for which a load balancer keeps its connections to the nodes. A connection that was never "
            "authenticated, or any on a crowded port, is closed after 5 s at the latest.",
            extremes="At least 1. Idle connections count towards connections_per_client_max.",
            metavar="SECONDS",
            default="5",
        ),
    )
    memory_bytes_max: int = field(
        default_factory=lambda: max(values.memory_of_machine() // 2, MEMORY_BYTES_MIN),
        metadata=option(
            values.size,
            "Memory for queued messages on this node, in bytes or with KiB, MiB, GiB. Paged-out data does not "
            "count: the middle of long queues, and bodies of 1 KiB and more. At the limit the node refuses pushes"
            " as overloaded until messages are acknowledged.",
            extremes="At least 64MiB. If it is too high, the kernel kills the process when memory runs out.",
            metavar="SIZE",
            default="half of the machine's memory",
        ),
    )
    disk_bytes_max: int = field(
        default=0,
        metadata=option(
            values.size,
            "Disk space for snapshots and pages on this node, without the log. At the limit the node refuses "
            "pushes as overloaded. 0 keeps a tenth of the file system free, or 10 GiB if that is less.",
            extremes="If it is too high, the node stops when the disk is full.",
            metavar="SIZE",
            default="0",
        ),
    )
    event_journal: Path | None = field(
        default=None,
        metadata=option(
            values.path_or_off,
            "Directory for the event journal, which records the events of messages (push, pull, ack and so on) as"
            " gzip JSON lines; created if absent. Nodes with different names may share it. off for none.",
            extremes="Costs about 10 bytes of disk and 2 microseconds of processor time per event. If the disk is full or "
            "too slow, the node drops and counts events and continues to serve.",
            metavar="DIR",
            default="off",
        ),
    )
    event_journal_bytes_max: int = field(
        default=64 * 1024 * 1024,
        metadata=option(
            values.size,
            "Compressed size at which the node starts a new file of the event journal, in bytes or with KiB, MiB, GiB.",
            extremes="At least 64KiB. A gzip file cannot be split, so one reader must process a large file alone.",
            metavar="SIZE",
            default="64MiB",
        ),
    )
    event_journal_files_max: int = field(
        default=16,
        metadata=option(
            values.count,
            "Files of the event journal that a node keeps; it deletes the oldest. Every start of the node begins "
            "a new file.",
            extremes="At least 1. If it is too low, events are deleted before you evaluate them.",
            metavar="COUNT",
            default="16",
        ),
    )
    log_level: str = field(
        default="info",
        metadata=option(
            values.choice(*LOG_LEVELS),
            "Least severe log lines to write: debug, info, warning or error.",
            extremes="debug also reports the errors of single requests. lmq-admin log-level changes it while the node "
            "runs.",
            metavar="LEVEL",
            default="info",
        ),
    )
    log_format: str = field(
        default="auto",
        metadata=option(
            values.choice(*LOG_FORMATS),
            "Format of the log on standard error: human, json, or auto (human on a terminal, otherwise json).",
            extremes="human is for reading and may change; json is for machines.",
            metavar="FORMAT",
            default="auto",
        ),
    )
    request_log: str = field(
        default="off",
        metadata=option(
            values.choice("on", "off"),
            "on to log every request at level info, with the method, the client, and over HTTP the status and "
            "duration; or off.",
            extremes="on costs a busy node most of its speed and fills the disk.",
            metavar="SWITCH",
            default="off",
        ),
    )
    pause_log_milliseconds: int = field(
        default=0,
        metadata=option(
            values.count,
            "Log each pause of the event loop longer than this many milliseconds, with its cause, to find what makes single "
            "requests slow; 0 logs none.",
            extremes="With a small value a busy node fills its log.",
            metavar="MILLISECONDS",
            default="0",
        ),
    )
    origins: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """The sources of values by option: ``flag --http``, ``environment LMQ_HTTP``, ``file PATH``; absent for the default."""

    def __post_init__(self) -> None:
        if self.advertise_raft is None and self.raft is not None and not self.raft.is_wildcard:
            object.__setattr__(self, "advertise_raft", self.raft)
        self.validate()

    def members(self) -> tuple[Address, ...]:
        """Return the sorted Raft addresses of all founding members, including this node; empty if Raft is off."""
        own = () if self.advertise_raft is None else (self.advertise_raft,)
        return tuple(sorted({one.canonical for one in (*self.peers, *own)}))

    def others(self) -> tuple[Address, ...]:
        """Return the addresses of `peers` without the node's own Raft address."""
        own = None if self.advertise_raft is None else self.advertise_raft.canonical
        return tuple(one for one in self.peers if one.canonical != own)

    def advertised(self, address: Address) -> Address:
        """Return the address to advertise for a listening address, with the advertised Raft host in place of a wildcard."""
        if not address.is_wildcard or self.advertise_raft is None:
            return address
        return Address(self.advertise_raft.host, address.port)

    def origin(self, name: str) -> str:
        """Return the source of an option's value."""
        return self.origins.get(name, "default")

    def validate(self) -> None:
        """Reject values that are invalid, alone or in combination.

        Raises:
            ConfigError: the text names the option, its source and the remedy.
        """
        if len(self.name) > NAME_CHARACTERS_MAX or not self.name.isprintable():
            self._fail("name", f"must be printable and at most {NAME_CHARACTERS_MAX} characters long")
        size = self.message_bytes_max
        if not 1 <= size <= MESSAGE_BYTES_MAX:
            self._fail("message_bytes_max", f"must be 1 B to {MESSAGE_BYTES_MAX >> 20}MiB, not {size} B")
        if not 0 <= self.attribute_bytes_max <= _ATTRIBUTE_BYTES_MOST:
            self._fail("attribute_bytes_max", f"must be at most 1MiB, not {self.attribute_bytes_max} B")
        if self.memory_bytes_max < MEMORY_BYTES_MIN:
            self._fail("memory_bytes_max", f"must be at least 64MiB, not {self.memory_bytes_max} B")
        if self.event_journal_bytes_max < EVENT_FILE_BYTES_MIN:
            self._fail("event_journal_bytes_max", f"must be at least 64KiB, not {self.event_journal_bytes_max} B")
        for least, names in (
            (0, ("requests_per_client_max", "front_ends", "pause_log_milliseconds")),
            (1, _TIMES_AND_COUNTS),
        ):
            for name in names:
                if getattr(self, name) < least:
                    self._fail(name, f"must be at least {least}, not {getattr(self, name)}")
        if self.front_ends > FRONT_ENDS_MAX:
            self._fail("front_ends", f"must be at most {FRONT_ENDS_MAX}, not {self.front_ends}")
        self.validate_attention(self._fail)
        self.validate_sqs(self._fail)
        self.validate_statsd(self._fail)
        self.validate_traces(self._fail)
        self._validate_listeners()
        self._validate_kestrel()
        self._validate_raft()
        self._validate_secret()
        self._validate_tls()

    def _validate_listeners(self) -> None:
        if self.http is None and self.rpc is None:
            self._fail("http", "and rpc are both off: the node could not be reached")
        taken: dict[int, list[tuple[str, Address]]] = {}
        for name in ("http", "rpc", "queued", "sqs", *KESTREL_PORTS, "raft"):
            address: Address | None = getattr(self, name)
            if address is None or address.port == 0:
                continue
            for other, used in taken.setdefault(address.port, []):
                if used.host == address.host or used.is_wildcard or address.is_wildcard:
                    self._fail(name, f"{address} collides with {other} {used}: give each its own port")
            taken[address.port].append((name, address))

    def _validate_kestrel(self) -> None:
        if not 1 <= self.kestrel_open_reads_max <= 1000:
            self._fail("kestrel_open_reads_max", f"must be 1 to 1000, not {self.kestrel_open_reads_max}")
        if self.thrift is not None and not has_thrift():
            self._fail("thrift", "needs a library that is not installed: install lmqcluster with the extra thrift")
        for name, address in self.kestrel_ports().items():
            if address.is_loopback or self.kestrel_insecure == "on":
                continue
            if self.tls_cert is None:
                self._fail(
                    name,
                    f"{address} is beyond loopback, and the protocol knows no tokens: set tls_cert, or kestrel_insecure to on",
                )
            if self.tls_client_ca is None and (served_as := getattr(self, f"{name}_as")):
                self._fail(
                    f"{name}_as",
                    f"gives everybody who reaches {address} the role of the token {served_as!r}: set tls_client_ca, so that "
                    "clients show a certificate, or kestrel_insecure to on",
                )

    def _validate_raft(self) -> None:
        if self.raft is None:
            for name, value in (("peers", self.peers), ("advertise_raft", self.advertise_raft)):
                if value:
                    self._fail(name, "is given but raft is off: peers could not be reached")
            return
        if self.raft.port == 0:
            self._fail("raft", f"{self.raft} has port 0: peers must know the port")
        if self.advertise_raft is None:
            self._fail("advertise_raft", f"is needed because raft listens on {self.raft}, which peers cannot dial")
        dialled = (("advertise_raft", self.advertise_raft), *(("peers", peer) for peer in self.peers))
        for name, address in dialled:
            if address.is_wildcard or address.port == 0:
                self._fail(name, f"{address} is not an address that a peer can dial")
        if len({one.canonical for one in self.peers}) != len(self.peers):
            self._fail("peers", "names an address twice")

    def _validate_secret(self) -> None:
        if self.cluster_secret is not None and len(self.cluster_secret.encode()) < SECRET_BYTES_MIN:
            self._fail("cluster_secret", f"must have at least {SECRET_BYTES_MIN} bytes: a short one can be guessed")
        if self.keeps_strangers_out or self.raft is None:
            return
        if self.admin_token_file is not None and len(self.members()) > 1:
            text = "needs a cluster secret, else anybody on this machine could get round tokens through the Raft port"
            self._fail("admin_token_file", f"{text}: set LMQ_CLUSTER_SECRET_FILE on all nodes")
        exposed = next((a for a in (self.raft, *self.members()) if not a.is_loopback), None)
        if exposed is not None:
            name = "raft" if exposed == self.raft else "advertise_raft" if exposed == self.advertise_raft else "peers"
            self._fail(name, f"{exposed} is beyond loopback: set LMQ_CLUSTER_SECRET_FILE or LMQ_RAFT_TLS_CA")

    def _validate_tls(self) -> None:
        if self.tls_cert is not None and self.tls_key is None:
            self._fail("tls_cert", "needs tls_key, the file of its private key")
        for name, value in (("tls_key", self.tls_key), ("tls_client_ca", self.tls_client_ca)):
            if value is not None and self.tls_cert is None:
                self._fail(name, "is of no use without tls_cert")

        if self.raft_tls_ca is None:
            for name in ("raft_tls_cert", "raft_tls_key"):
                if getattr(self, name) is not None:
                    self._fail(name, "is of no use without raft_tls_ca")
        elif self.raft_tls_files() is None:
            self._fail("raft_tls_ca", "needs raft_tls_cert and raft_tls_key, or tls_cert and tls_key")

    @property
    def keeps_strangers_out(self) -> bool:
        """Return whether peers must present a secret or a certificate."""
        return self.cluster_secret is not None or (self.raft_tls_ca is not None and self.raft_tls == "required")

    def raft_tls_files(self) -> tuple[Path, Path, Path] | None:
        """Return certificate, key and authority for TLS between peers; None without TLS."""
        own = (self.raft_tls_cert, self.raft_tls_key)
        cert, key = (self.tls_cert, self.tls_key) if own == (None, None) else own
        if self.raft_tls_ca is None or cert is None or key is None:
            return None
        return cert, key, self.raft_tls_ca

    def _fail(self, name: str, reason: str) -> NoReturn:
        raise ConfigError(f"{name} {reason} ({self.origin(name)})")


_INHERITED: Final = frozenset(
    item.name
    for options in (AttentionOptions, KestrelOptions, SqsOptions, StatsdOptions, TraceOptions)
    for item in fields(options)
)
OPTIONS: Final = tuple(
    Option.of(item) for item in sorted(fields(NodeConfig), key=lambda one: one.name in _INHERITED) if item.metadata
)
"""All options in the order of the documentation."""
