use super::*;
use crate::rng::Rng;
use crate::seeds::each_seed;

/// Files and records that are mutated.
const SEEDS: [&[u8]; 7] = [
    b"",
    b"nameserver 10.0.0.1\nnameserver fe80::1%2\noptions timeout:1 attempts:3 rotate use-vc ndots:5\nsearch a b.\n",
    b"127.0.0.1 localhost a # b\n::1 a.b\n",
    b"\x01\0\0\0\xc0\x0c\0\x21\0\x01\0\0\0\x3c\0\x0a\0\0\0\0\x69\x87\x01a\xc0\x1a",
    b"\x01\0\0\0\xc0\x0c\0\x05\0\x01\0\0\0\x3c\0\x02\xc0\x0c",
    b"\x01\0\0\0\xc0\x0c\0\x10\0\x01\0\0\0\x3c\0\x04\x03a=b",
    b"\0\x01\x01\0\xc0\x0c\0\x06\0\x01\0\0\0\x3c\0\x18\xc0\x0c\xc0\x0c\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x29\x04\xd0\0\0\0\0\0\0",
];

#[test]
fn the_body_holds_on_seeds_and_their_mutations() {
    each_seed(300, |seed| {
        let mut rng = Rng::new(seed);
        let mut below = |bound: usize| usize::try_from(rng.next_u64() % bound.max(1) as u64).unwrap();
        let mut bytes = SEEDS[below(SEEDS.len())].to_vec();
        for _ in 0..below(5) {
            let at = below(bytes.len());
            let any = u8::try_from(below(256)).unwrap();
            let byte = [0, 1, 5, 12, 33, 41, 0x3F, 0x80, 0xC0, 0xFF, any][below(11)];
            match below(3) {
                0 if !bytes.is_empty() => bytes[at] = byte,
                1 if !bytes.is_empty() => drop(bytes.remove(at)),
                _ => bytes.insert(at, byte),
            }
        }
        dns(&bytes);
    });
}

#[test]
fn the_body_holds_on_random_conversations_and_some_succeed() {
    let mut found = 0;
    let runs = each_seed(500, |seed| {
        let mut rng = Rng::new(seed);
        let count = 16 + rng.next_u64() % 100;
        let bytes: Vec<u8> = (0..count).map(|_| rng.next_u64().to_le_bytes()[0]).collect();
        dns(&bytes);
        let mut lookup = Lookup::new(&ResolverConfig::default(), NAME, RecordKind::Srv, 0).unwrap();
        lookup.poll_action(Instant::ORIGIN, 7).unwrap();
        let spoken = spoken(&lookup, &mut Bytes::new(&bytes), &bytes);
        lookup.handle_datagram(Instant::ORIGIN, ([127, 0, 0, 1], 53).into(), &spoken);
        found += u64::from(matches!(lookup.into_result(), Ok(Answer::Srv(_))));
    });
    assert!(found >= runs / 40, "only {found} of {runs} answers were accepted");
}
