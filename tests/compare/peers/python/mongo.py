"""pymongo: see ../README.md."""

import sys

import peer
from pymongo import MongoClient

admin = MongoClient("mongodb://" + sys.argv[1]).admin
peer.run(lambda: admin.command("ping")["ok"])
