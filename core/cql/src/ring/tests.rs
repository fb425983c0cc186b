use super::*;
use alloc::format;
use alloc::vec;

const NODES: [(&str, &str); 8] = [
    ("east", "r1"),
    ("east", "r1"),
    ("east", "r2"),
    ("west", "r1"),
    ("west", "r2"),
    ("west", "r2"),
    ("east", "r1"),
    ("west", "r3"),
];

/// Eight nodes with three tokens each: those of the texts `NODE/NUMBER`.
fn eight_nodes() -> Ring {
    let tokens: Vec<Vec<Token>> = (0..NODES.len())
        .map(|node| (0..3).map(|number| Token::of(format!("{node}/{number}").as_bytes())).collect())
        .collect();
    let nodes = NODES.iter().zip(&tokens);
    let nodes = nodes.map(|((data_center, rack), tokens)| RingNode { data_center, rack, tokens });
    Ring::new(nodes).expect("small")
}

fn topology(factors: &[(&str, usize)]) -> Replication {
    Replication::NetworkTopology {
        factors: factors.iter().map(|(name, factor)| (String::from(*name), *factor)).collect(),
    }
}

/// The replicas of each token in the order of the ring, each list sorted.
fn shown(ring: &Ring, replicas: &Replicas) -> Vec<String> {
    let sorted = |token: &Token| {
        let mut nodes = replicas.of(*token).to_vec();
        nodes.sort_unstable();
        nodes.iter().map(|node| format!("{node}")).collect()
    };
    ring.tokens.iter().map(sorted).collect()
}

/// Computed by `make_token_replica_map` of the strategies in `cassandra/metadata.py`, PyPI's
/// cassandra-driver 3.30.1, for the nodes and tokens of [`eight_nodes`].
#[test]
fn replicas_are_those_of_the_python_driver() {
    let cases = [
        (
            Replication::Simple { factor: 3 },
            "456 345 234 235 025 045 045 345 135 137 017 027 027 237 023 036 046 467 247 127 126 156 156 456",
        ),
        (
            topology(&[("east", 2), ("west", 3)]),
            "23567 02357 02347 02357 02357 02357 02347 12347 12357 12347 12347 02347 02347 02347 02347 02347 02347 23467 \
             12347 12357 12357 12357 12357 23567",
        ),
        (
            topology(&[("east", 3), ("west", 2)]),
            "02356 01235 01234 01235 01235 01235 01234 01234 01235 01237 01237 02367 02367 02367 02346 02346 02467 12467 \
             12467 12567 12356 12356 12356 02356",
        ),
    ];
    let ring = eight_nodes();
    for (replication, expected) in cases {
        let found = shown(&ring, &ring.replicas(&replication, None)).join(" ");
        assert_eq!(found, expected, "{replication:?}");
    }
}

#[test]
fn token_belongs_to_the_next_token_of_the_ring() {
    let (low, high) = ([Token::new(-10)], [Token::new(10)]);
    let node = |tokens| RingNode { data_center: "east", rack: "r1", tokens };
    let ring = Ring::new([node(&low[..]), node(&high[..])]).expect("small");
    let replicas = ring.replicas(&Replication::Simple { factor: 1 }, None);
    for (token, owner) in [(i64::MIN, 0), (-10, 0), (-9, 1), (10, 1), (11, 0), (i64::MAX, 0)] {
        assert_eq!(replicas.of(Token::new(token)), [owner], "{token}");
    }
}

#[test]
fn replicas_of_one_data_center_are_the_first_part() {
    let ring = eight_nodes();
    for replication in [Replication::Simple { factor: 4 }, topology(&[("east", 2), ("west", 2)])] {
        let (all, east) = (ring.replicas(&replication, None), ring.replicas(&replication, Some("east")));
        let nowhere = ring.replicas(&replication, Some("north"));
        for token in ring.tokens.iter() {
            let eastern = all.of(*token).iter().copied().filter(|node| NODES[usize::from(*node)].0 == "east");
            assert_eq!(east.of(*token), eastern.collect::<Vec<_>>());
            assert!(nowhere.of(*token).is_empty());
        }
    }
}

#[test]
fn empty_ring_has_no_replicas() {
    let ring = Ring::new([RingNode { data_center: "east", rack: "r1", tokens: &[] }]).expect("small");
    assert_eq!(ring.token_count(), 0);
    for replication in [Replication::Simple { factor: 3 }, topology(&[("east", 3)])] {
        assert!(ring.replicas(&replication, None).of(Token::new(0)).is_empty());
    }
    assert!(Replicas::default().of(Token::new(0)).is_empty());
}

#[test]
fn token_of_two_nodes_is_that_of_the_first() {
    let tokens = [Token::new(1)];
    let node = RingNode { data_center: "east", rack: "r1", tokens: &tokens };
    let ring = Ring::new([node, node]).expect("small");
    assert_eq!(ring.replicas(&Replication::Simple { factor: 2 }, None).of(Token::new(1)), [0]);
}

#[test]
fn ring_with_too_many_nodes_or_tokens_is_refused() {
    let node = RingNode { data_center: "east", rack: "r1", tokens: &[] };
    assert!(Ring::new(vec![node; RING_NODES_MAX]).is_ok());
    assert_eq!(Ring::new(vec![node; RING_NODES_MAX + 1]), Err(RingError::TooManyNodes));
    let tokens = vec![Token::new(1); RING_TOKENS_MAX];
    let node = RingNode { tokens: &tokens, ..node };
    assert_eq!(Ring::new([node]).map(|ring| ring.token_count()), Ok(1));
    assert_eq!(Ring::new([node, RingNode { tokens: &tokens[..1], ..node }]), Err(RingError::TooManyTokens));
}

/// Numbers by xorshift64*.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % bound
    }
}

/// Follows Cassandra's strategies step by step from a token.
fn walked(ring: &Ring, at: usize, factor: usize, group_of: impl Fn(u16) -> Option<u16>) -> Vec<u16> {
    let mut order: Vec<u16> = Vec::new();
    for step in 0..ring.owners.len() {
        let node = ring.owners[(at + step) % ring.owners.len()];
        if group_of(node).is_some() && !order.contains(&node) {
            order.push(node);
        }
    }
    let mut groups: Vec<u16> = order.iter().filter_map(|node| group_of(*node)).collect();
    groups.sort_unstable();
    groups.dedup();
    let mut repeats = factor.saturating_sub(groups.len());
    let (mut seen, mut taken) = (Vec::new(), Vec::new());
    for node in order {
        if taken.len() == factor {
            break;
        }
        if !seen.contains(&group_of(node)) {
            seen.push(group_of(node));
        } else if repeats > 0 {
            repeats -= 1;
        } else {
            continue;
        }
        taken.push(node);
    }
    taken
}

#[test]
fn replicas_are_those_of_a_walk_over_the_ring() {
    let names = ["a", "b", "c", "d"];
    for seed in 1..400 {
        let mut numbers = Numbers(seed);
        let (centers, racks) = (1 + numbers.below(3), 1 + numbers.below(4));
        let nodes: Vec<(usize, usize, Vec<Token>)> = (0..1 + numbers.below(12))
            .map(|_| {
                // Few different tokens, so that some are those of several nodes.
                let tokens = (0..numbers.below(6)).map(|_| Token::new(numbers.below(60).cast_signed())).collect();
                let (center, rack) = (numbers.below(centers), numbers.below(racks));
                (usize::try_from(center).expect("small"), usize::try_from(rack).expect("small"), tokens)
            })
            .collect();
        let ring = Ring::new(nodes.iter().map(|(center, rack, tokens)| RingNode {
            data_center: names[*center],
            rack: names[*rack],
            tokens,
        }))
        .expect("small");
        let factor = usize::try_from(numbers.below(6)).expect("small");
        let simple = ring.replicas(&Replication::Simple { factor }, None);
        let topology = ring.replicas(&topology(&[("a", factor), ("b", 2)]), None);
        for (at, token) in ring.tokens.iter().enumerate() {
            assert_eq!(simple.of(*token), walked(&ring, at, factor, Some), "seed {seed}, {token:?}");
            let rack_in = |center: usize| {
                let nodes = &nodes;
                move |node: u16| {
                    let (own, rack, _) = &nodes[usize::from(node)];
                    (*own == center).then(|| u16::try_from(*rack).expect("small"))
                }
            };
            let expected = [walked(&ring, at, factor, rack_in(0)), walked(&ring, at, 2, rack_in(1))].concat();
            assert_eq!(topology.of(*token), expected, "seed {seed}, {token:?}");
        }
    }
}

/// Encodes a map of texts.
fn map(entries: &[(&str, &str)]) -> Vec<u8> {
    let long = |bytes: &[u8]| [&u32::try_from(bytes.len()).expect("short").to_be_bytes(), bytes].concat();
    let mut cell = u32::try_from(entries.len()).expect("few").to_be_bytes().to_vec();
    for (name, value) in entries {
        cell.extend(long(name.as_bytes()));
        cell.extend(long(value.as_bytes()));
    }
    cell
}

fn read(entries: &[(&str, &str)]) -> Option<Replication> {
    Replication::read(Pairs::read(&map(entries)).expect("well-formed"))
}

#[test]
fn replication_is_read_from_the_system_table() {
    let class = "org.apache.cassandra.locator.NetworkTopologyStrategy";
    assert_eq!(read(&[("west", "3/1"), ("class", class), ("east", "2")]), Some(topology(&[("east", 2), ("west", 3)])));
    let simple = |factor| read(&[("class", "SimpleStrategy"), ("replication_factor", factor)]);
    assert_eq!(simple("3"), Some(Replication::Simple { factor: 3 }));
    for factor in ["", "-1", "x", "99999999999999999999"] {
        assert_eq!(simple(factor), None, "{factor}");
    }
    assert_eq!(read(&[("class", "SimpleStrategy")]), None);
    assert_eq!(read(&[("class", "org.apache.cassandra.locator.LocalStrategy")]), None);
    assert_eq!(read(&[]), None);
    let many: Vec<String> = (0..=Replication::DATA_CENTERS_MAX).map(|number| format!("dc{number}")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|name| (name.as_str(), "1")).collect();
    assert_eq!(read(&many), None);
    let classes = |count| read(&vec![("class", "NetworkTopologyStrategy"); count]);
    assert!(classes(Replication::DATA_CENTERS_MAX + 2).is_some());
    assert_eq!(classes(Replication::DATA_CENTERS_MAX + 3), None);
}

#[test]
fn huge_factor_has_a_limit() {
    let tokens: Vec<[Token; 1]> = (0..40).map(|number| [Token::new(number)]).collect();
    let nodes = tokens.iter().map(|tokens| RingNode { data_center: "east", rack: "r1", tokens });
    let ring = Ring::new(nodes).expect("small");
    let replicas = ring.replicas(&Replication::Simple { factor: usize::MAX }, None);
    assert_eq!(replicas.of(Token::new(0)).len(), REPLICAS_MAX);
    let replicas = ring.replicas(&topology(&[("east", usize::MAX)]), None);
    assert_eq!(replicas.of(Token::new(0)).len(), REPLICAS_MAX);
}

#[test]
fn work_for_a_ring_of_many_racks_is_bounded() {
    // The most tokens, in 8 racks, and a factor for which nodes of the same rack are repeated.
    let mut numbers = Numbers(1);
    let nodes: Vec<(String, Vec<Token>)> = (0..512)
        .map(|node| {
            let tokens = (0..RING_TOKENS_MAX / 512).map(|_| Token::new(numbers.below(u64::MAX).cast_signed()));
            (format!("r{}", node % 8), tokens.collect())
        })
        .collect();
    let ring = Ring::new(nodes.iter().map(|(rack, tokens)| RingNode { data_center: "east", rack, tokens }));
    let ring = ring.expect("small");
    let replication = topology(&[("east", REPLICAS_MAX)]);
    let mut placement = ring.place(&replication, None);
    assert_eq!(placement.replica_count(), ring.token_count() * REPLICAS_MAX);
    let mut steps = 1;
    while placement.step() {
        let near = placement.walks[0].near.len();
        assert!(near <= 8 * 9, "of each rack one node, and as many repeated ones as a walk may take: {near}");
        steps += 1;
    }
    // A node of the ring is looked at once, and a token costs as many nodes as are near.
    let looked_at = ring.token_count() * (8 * 9 + REPLICAS_MAX + 2);
    assert!(steps <= looked_at / STEP_NODES + 1, "{steps} steps");
    // A token costs as many nodes as it has replicas, or more. A step that does more than its share blocks the executor.
    assert!(steps >= ring.token_count() * REPLICAS_MAX / STEP_NODES, "only {steps} steps");
    assert_eq!(placement.finish(), ring.replicas(&replication, None));
}

#[test]
fn data_centers_beyond_the_limit_have_no_replicas() {
    let names: Vec<String> = (0..64).map(|number| format!("dc{number:02}")).collect();
    let tokens: Vec<Vec<Token>> =
        (0..64).map(|node: i64| (0..4_096).map(|number: i64| Token::new(number * 64 + node)).collect()).collect();
    let nodes = names.iter().zip(&tokens);
    let ring = Ring::new(nodes.map(|(name, tokens)| RingNode { data_center: name, rack: "r1", tokens }));
    let ring = ring.expect("small");
    let factors: Vec<(&str, usize)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let replicas = ring.replicas(&topology(&factors), None);
    assert_eq!(replicas.of(Token::new(5)), (0..16).collect::<Vec<u16>>());
}
