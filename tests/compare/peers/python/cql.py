"""The DataStax Python driver: see ../README.md."""

import sys

import peer
from cassandra.cluster import Cluster

host, port = sys.argv[1].split(":")
session = Cluster([host], port=int(port)).connect()
statement = session.prepare("SELECT release_version FROM system.local")
peer.run(lambda: session.execute(statement).one().release_version)
