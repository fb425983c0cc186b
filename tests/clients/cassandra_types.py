#!/usr/bin/env python3
"""Writes and reads values of all CQL types with PyPI's cassandra-driver, to compare them with those of
another driver.

usage: cassandra_types.py HOST PORT KEYSPACE write|read TABLE

`write` writes its rows to the table and prints them; `read` prints the rows of the table. A line is a row,
a column and its value in plain text, separated by tabs. Exit status 0 on success.
"""

import datetime
import decimal
import struct
import sys
import uuid

from cassandra.cluster import Cluster, EXEC_PROFILE_DEFAULT, ExecutionProfile
from cassandra.io.asyncioreactor import AsyncioConnection
from cassandra.policies import RoundRobinPolicy
from cassandra.util import Date, Duration, OrderedMapSerializedKey, SortedSet, Time

PATIENCE_S = 60
EPOCH = datetime.datetime(1970, 1, 1)


def plain(value):
    """The value as text: see `Plain` in types.rs."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return struct.pack(">d", value).hex()
    if isinstance(value, decimal.Decimal):
        sign, digits, exponent = value.as_tuple()
        return f"{'-' if sign and any(digits) else ''}{int(''.join(map(str, digits)))}e{exponent}"
    if isinstance(value, str):
        return value.encode().hex()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime.datetime):
        return str((value - EPOCH) // datetime.timedelta(milliseconds=1))
    if isinstance(value, Date):
        return str(value.days_from_epoch)
    if isinstance(value, Time):
        return str(value.nanosecond_time)
    if isinstance(value, Duration):
        return f"{value.months}/{value.days}/{value.nanoseconds}"
    if isinstance(value, (SortedSet, set, frozenset)):
        return f"[{' '.join(sorted(map(plain, value)))}]"
    if isinstance(value, (dict, OrderedMapSerializedKey)):
        return f"[{' '.join(sorted(f'{plain(key)}={plain(one)}' for key, one in value.items()))}]"
    # Lists, vectors, tuples and user-defined types.
    if isinstance(value, (list, tuple)):
        return f"[{' '.join(map(plain, value))}]"
    return str(value)


def rows():
    """The rows: the same as those of types.rs."""
    first, last = uuid.UUID(int=0), uuid.UUID(int=2**128 - 1)
    time_uuid = uuid.UUID("fe2b4360-28c6-11e2-81c1-0800200c9a66")
    long = 10**50
    return [
        {"id": "usual", "ascii": "tea", "bigint": 7, "blob": b"\x01\xff", "boolean": True,
         "decimal": decimal.Decimal("-12.50"), "double": 0.1, "float": -2.5, "int": 8,
         "timestamp": EPOCH + datetime.timedelta(milliseconds=1_790_000_000_123), "uuid": uuid.UUID(int=77),
         "text": "Grüße 茶", "varint": -129, "timeuuid": time_uuid, "inet": "10.0.0.1", "date": Date(20_000),
         "time": Time(37_000_000_009), "smallint": -300, "tinyint": -5, "duration": Duration(14, 3, 5_000_000_001),
         "list": [1, 2, -3], "s": {"b", "a"}, "map": {"x": decimal.Decimal("1.5"), "y": decimal.Decimal("-2")},
         "tuple": (1, None, [1.5, -2.5]), "udt": ("a", [1.5, 2.5], None),
         "lists": [[1], [], [2, 3]], "udts": [(None, None, {"n": 1})],
         "v_float": [1.0, 2.5, -3.0], "v_text": ["", "long " * 40], "v_vector": [[7, 258], [-1, 0]],
         "l_vector": [[1.5, 2.5], [3.5, 4.5]], "v_varint": [-1, long], "v_decimal": [decimal.Decimal("1e-3"), decimal.Decimal(7)],
         "v_smallint": [1, -2, 300], "v_list": [[1, 2], []], "v_udt": [("b", None, None), (None, [0.5, 0.25], {})]},
        {"id": "nulls"},
        {"id": "empties", "ascii": "", "blob": b"", "text": "", "list": [], "s": set(), "map": {},
         "tuple": (None, "", None), "lists": [], "udts": []},
        {"id": "least", "bigint": -2**63, "boolean": False, "decimal": decimal.Decimal((1, (9,) * 40, 300)),
         "double": float("-inf"), "float": -struct.unpack(">f", b"\x7f\x7f\xff\xff")[0], "int": -2**31,
         "timestamp": EPOCH - datetime.timedelta(days=719_162), "uuid": first, "varint": -long, "inet": "0.0.0.0",
         "date": Date(-2**31), "time": Time(0), "smallint": -2**15, "tinyint": -2**7,
         "duration": Duration(-(2**31 - 1), -(2**31 - 1), -(2**63 - 1)), "v_float": [-0.0, float("-inf"), 1e-45]},
        {"id": "greatest", "bigint": 2**63 - 1, "decimal": decimal.Decimal((0, (9,) * 40, -300)),
         "double": float("inf"), "float": struct.unpack(">f", b"\x7f\x7f\xff\xff")[0], "int": 2**31 - 1,
         "timestamp": datetime.datetime(9999, 12, 31, 23, 59, 59), "uuid": last, "varint": long,
         "inet": "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "date": Date(2**31 - 1), "time": Time(86_399_999_999_999),
         "smallint": 2**15 - 1, "tinyint": 2**7 - 1, "duration": Duration(2**31 - 1, 2**31 - 1, 2**63 - 1)},
    ]


def show(name, row):
    for column, value in row.items():
        if column != "id":
            print(name, column, plain(value), sep="\t")


def main():
    host, port, keyspace, what, table = sys.argv[1:]
    profile = ExecutionProfile(load_balancing_policy=RoundRobinPolicy(), request_timeout=PATIENCE_S)
    cluster = Cluster([host], port=int(port), execution_profiles={EXEC_PROFILE_DEFAULT: profile},
                      connection_class=AsyncioConnection, connect_timeout=PATIENCE_S)
    session = cluster.connect(keyspace)
    if what == "write":
        place = cluster.metadata.keyspaces[keyspace].user_types["place"]
        columns = list(cluster.metadata.keyspaces[keyspace].tables[table].columns)
        insert = session.prepare(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})")
        assert place.field_names == ["name", "spot", "notes"], place.field_names
        for row in rows():
            session.execute(insert, [row.get(column) for column in columns])
    for row in sorted(session.execute(f"SELECT * FROM {table}"), key=lambda row: row.id):
        show(row.id, row._asdict())
    if what == "write":
        for row in rows():
            show(f"as written: {row['id']}", row)
    cluster.shutdown()


main()
