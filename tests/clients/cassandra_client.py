#!/usr/bin/env python3
"""Tests a server of Cassandra's protocol with PyPI's cassandra-driver: queries, prepared statements,
many requests at a time.

usage: cassandra_client.py HOST PORT VERSION|any COMPRESSION|none USER:PASSWORD|none ok|refused

The server must echo: see poolhouse_fake::cql. Exit status 0 on success.
"""

import sys
import time

from cassandra import InvalidRequest, __version__
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster, EXEC_PROFILE_DEFAULT, ExecutionProfile, NoHostAvailable
from cassandra.concurrent import execute_concurrent, execute_concurrent_with_args
from cassandra.io.asyncioreactor import AsyncioConnection
from cassandra.policies import RoundRobinPolicy
from cassandra.protocol import SyntaxException
from cassandra.query import BatchStatement, SimpleStatement
from cassandra.segment import CRC32_LENGTH, Segment

# Much longer than any operation takes.
PATIENCE_S = 40


class Connection(AsyncioConnection):
    """The driver's connection, without two bugs of its v5 code (observed in 3.30) that depend on where a read ends.

    The driver loses the received part of a segment header when the rest has not arrived: it does not
    rewind its buffer. And it assumes that the header of an uncompressed segment is two bytes shorter
    than it is, so it treats the segment as complete when its last two bytes are missing.
    """

    # Large reads, of which few end at the boundary of a segment.
    in_buffer_size = 4 << 20

    def _process_segment_buffer(self):
        buffer, codec = self._io_buffer, self._segment_codec
        readable, needed = buffer.readable_io_bytes(), codec.header_length_with_crc
        if codec.compression and readable >= needed:
            # The first 17 bits of the header are the length of the payload; the driver verifies the
            # checksum.
            length = int.from_bytes(buffer.io_buffer.getvalue()[:3], "little") & Segment.MAX_PAYLOAD_LENGTH
            needed += length + CRC32_LENGTH
        if readable >= needed:
            super()._process_segment_buffer()
        else:
            buffer._segment_consumed = False
            buffer.io_buffer.seek(0)


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def works(session):
    check(session.execute("echo hello").one().reply == "hello", "a query")
    check(session.execute("echo Grüße").one().reply == "Grüße", "a query beyond ASCII")
    check(session.execute("echo %s", ("bound by the client",)).one().reply == "'bound by the client'", "a query with values")
    check(session.execute("void").one() is None, "no rows")
    row = session.execute("SELECT cluster_name, tokens FROM system.local WHERE key='local'").one()
    check(row.cluster_name == "poolhouse" and len(row.tokens) == 1, f"the node's own row: {row}")
    # In v5 this reply is sent in many segments.
    long = bytes(session.execute("bytes 500000 ab").one().reply)
    check(long == b"ab" * 250000, f"{len(long)} bytes")
    text = "x" * 300000
    check(session.execute(f"echo {text}").one().reply == text, "a long query")

    echo = session.prepare("echo ? of ?")
    check(session.execute(echo, ("one", "two")).one().reply == "one of two", "a prepared statement")
    arguments = [(str(number), "a thousand") for number in range(1000)]
    results = execute_concurrent_with_args(session, echo, arguments, concurrency=300)
    for number, (success, rows) in enumerate(results):
        check(success, rows)
        check(rows.one().reply == f"{number} of a thousand", f"{number}: the reply to another request")

    # The server holds the replies to requests with a delay of 0 until 50 of them are held. There
    # are 150 such requests: see python_client.rs.
    statements = [(SimpleStatement(f"delay {number % 7} echo {number}"), ()) for number in range(1050)]
    for number, (success, rows) in enumerate(execute_concurrent(session, statements, concurrency=500)):
        check(success, rows)
        check(rows.one().reply == str(number), f"{number}: the reply to another request")

    batch = BatchStatement()
    batch.add(SimpleStatement("void 1"))
    batch.add(session.prepare("void ?"), ("2",))
    check(session.execute(batch).one() is None, "a batch")
    for statement, error in [("sing a song", SyntaxException), ("SELECT * FROM letters.sent", InvalidRequest)]:
        try:
            session.execute(statement)
        except error:
            pass
        else:
            raise AssertionError(f"{statement} was not refused")


def main():
    host, port, version, compression, user, expectation = sys.argv[1:]
    options = {} if version == "any" else {"protocol_version": int(version)}
    if user != "none":
        name, password = user.split(":")
        options["auth_provider"] = PlainTextAuthProvider(username=name, password=password)
    cluster = Cluster(
        [host],
        port=int(port),
        compression=False if compression == "none" else compression,
        # Asyncio is the only event loop that every version of Python has, without extensions in C.
        connection_class=Connection,
        connect_timeout=PATIENCE_S,
        control_connection_timeout=PATIENCE_S,
        execution_profiles={
            EXEC_PROFILE_DEFAULT: ExecutionProfile(load_balancing_policy=RoundRobinPolicy(), request_timeout=PATIENCE_S)
        },
        **options,
    )
    if expectation == "refused":
        try:
            cluster.connect()
        except NoHostAvailable as error:
            check("password" in str(error), f"another error than that of the password: {error}")
        else:
            raise AssertionError("the server accepted a wrong password")
        return
    begun = time.monotonic()
    session = cluster.connect()
    works(session)
    # The server is one node, and the client knows its keyspace.
    check([host.release_version for host in cluster.metadata.all_hosts()] == ["4.1.0"], "one node")
    check("poolhouse" in cluster.metadata.keyspaces, "its schema")
    session.execute("USE poolhouse")
    works(session)
    print(f"cassandra-driver {__version__}, v{cluster.protocol_version}, {compression}: {time.monotonic() - begun:.1f} s")
    cluster.shutdown()


main()
