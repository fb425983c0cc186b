//! Rows of the tables of nodes, without a network.

use super::*;
use poolhouse_cql::{Outcome, OutcomeKind};

fn int(number: usize) -> [u8; 4] {
    u32::try_from(number).expect("small").to_be_bytes()
}

fn string(text: &str) -> Vec<u8> {
    [&u16::try_from(text.len()).expect("short").to_be_bytes(), text.as_bytes()].concat()
}

fn long(bytes: &[u8]) -> Vec<u8> {
    [&int(bytes.len()), bytes].concat()
}

/// The body of rows whose columns are texts, or sets of texts.
fn body(names: &[&str], rows: &[&[&[u8]]]) -> Vec<u8> {
    let mut body = [int(1), int(names.len())].concat();
    body.extend([string("system"), string("nodes")].concat());
    for name in names {
        body.extend(string(name));
        body.extend([0, 13]);
    }
    body.extend(int(rows.len()));
    body.extend(rows.iter().flat_map(|row| row.iter()).flat_map(|cell| long(cell)));
    body
}

fn rows(body: &[u8]) -> Rows<'_> {
    Outcome { kind: OutcomeKind::Rows, body }.rows().expect("well-formed").expect("rows")
}

fn tokens(count: usize) -> Vec<u8> {
    let mut cell = int(count).to_vec();
    cell.extend((0..count).flat_map(|_| long(b"7")));
    cell
}

#[test]
fn tokens_of_all_rows_are_not_many_more_than_those_of_a_ring() {
    let half = tokens(RING_TOKENS_MAX / 2 + 1);
    let body = body(&["rack", "tokens"], &[&[b"r1", &half], &[b"r2", &half], &[b"r3", &half]]);
    let read: Vec<_> = node_rows(rows(&body)).map(|row| (row.rack, row.tokens.len())).collect();
    let (all, half) = (RING_TOKENS_MAX, RING_TOKENS_MAX / 2);
    let expected = [("r1", half + 1), ("r2", all - half), ("r3", 0)];
    assert_eq!(read, expected.map(|(rack, count)| (Some(String::from(rack)), count)));
}

#[test]
fn answer_with_too_many_rows_is_refused_and_surplus_keyspaces_are_left_out() {
    let row: &[&[u8]] = &[b"r1"];
    let many = |count| body(&["rack"], &vec![row; count]);
    assert_eq!(peers(rows(&many(ROWS_MAX))).map(|peers| peers.len()), Some(ROWS_MAX));
    assert!(peers(rows(&many(ROWS_MAX + 1))).is_none());
    let pairs = [("class", "SimpleStrategy"), ("replication_factor", "1")];
    let pairs = pairs.into_iter().flat_map(|(key, value)| [long(key.as_bytes()), long(value.as_bytes())].concat());
    let replication: Vec<u8> = int(2).into_iter().chain(pairs).collect();
    let keyspace: &[&[u8]] = &[b"shop", &replication];
    let found = keyspaces(rows(&body(&["keyspace_name", "replication"], &vec![keyspace; KEYSPACES_MAX + 1])));
    assert_eq!(found.len(), KEYSPACES_MAX);
}

#[test]
fn tokens_are_known_with_one_partitioner() {
    let with = |name: &[u8]| {
        let body = body(&["key", "partitioner"], &[&[b"local", name]]);
        has_known_tokens(rows(&body))
    };
    assert!(with(b"org.apache.cassandra.dht.Murmur3Partitioner"));
    assert!(with(b"Murmur3Partitioner"));
    assert!(!with(b"org.apache.cassandra.dht.RandomPartitioner"));
    assert!(!with(b""));
    assert!(!has_known_tokens(rows(&body(&["key"], &[&[b"local"]]))));
}

#[test]
fn available_nodes_are_remote_before_others() {
    use Distance::{Ignored, Local, Remote};
    let node = |number: u8, data_center: &str, is_up| {
        let node = Node { data_center: data_center.into(), rack: String::from("r1"), tokens: Vec::new(), is_up };
        (SocketAddr::from(([10, 0, 0, number], 9042)), node)
    };
    let nodes = BTreeMap::from([
        node(1, "west", false),
        node(2, "west", true),
        node(3, "west", true),
        node(4, "north", false),
        node(5, "east", false),
    ]);
    let of = |local, remote_max| {
        let hosts = hosts_of(&nodes, local, remote_max);
        let mut hosts: Vec<_> = hosts.into_iter().map(|host| (host.address, host.distance)).collect();
        hosts.sort_unstable();
        hosts.into_iter().map(|(_, distance)| distance).collect::<Vec<_>>()
    };
    assert_eq!(of(Some("east"), 1), [Ignored, Remote, Ignored, Remote, Local]);
    assert_eq!(of(Some("east"), 3), [Remote, Remote, Remote, Remote, Local]);
    assert_eq!(of(None, 0), [Local; 5]);
}

#[test]
fn availability_is_no_part_of_the_place_of_a_node() {
    let node = |tokens: &[i64], is_up| {
        let node = Node { data_center: String::from("east"), rack: String::from("r1"), tokens: tokens.into(), is_up };
        BTreeMap::from([(SocketAddr::from(([10, 0, 0, 1], 9042)), node)])
    };
    assert!(have_same_places(&node(&[1], true), &node(&[1], false)));
    assert!(!have_same_places(&node(&[1], true), &node(&[2], true)));
    assert!(!have_same_places(&node(&[1], true), &BTreeMap::new()));
}
