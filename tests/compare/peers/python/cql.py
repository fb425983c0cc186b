"""The DataStax Python driver: see ../README.md."""

import ssl
import sys

import peer
from cassandra.cluster import Cluster

host, port = sys.argv[1].split(":")
if sys.argv[2:] and sys.argv[2] != "1":
    sys.exit("this driver has one connection to a node")
options = {}
if sys.argv[3:]:
    context = ssl.create_default_context(cafile=sys.argv[3])
    options = {"ssl_context": context, "ssl_options": {"server_hostname": host}}
session = Cluster([host], port=int(port), **options).connect()
statement = session.prepare("SELECT release_version FROM system.local")
peer.run(lambda: session.execute(statement).one().release_version)
