use super::*;
use crate::rng::Rng;
use crate::seeds::each_seed;

#[test]
fn every_method_gets_past_authentication() {
    for choice in 0..40 {
        let outcome = talk(&[choice], usize::MAX);
        let Outcome::Established { answered, error, .. } = outcome else { panic!("{choice}: {outcome:?}") };
        assert_eq!((answered, error), (COMMANDS, None));
        conversation(&[choice]);
    }
}

#[test]
fn changed_proof_is_rejected() {
    // The third reply is that to the last message of SCRAM-SHA-256 without speculation.
    let place = b"\x06\xfe\xfe\x06\x50\x01";
    let outcome = talk(place, usize::MAX);
    assert!(matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
}

/// Tries the wrong message at each position of the conversation. A client with speculative
/// authentication receives the nonce in the hello reply, others one message later.
#[test]
fn wrong_message_is_rejected() {
    for choice in [1, 2, 6, 7] {
        for lie in [b"\x09\x00", b"\x09\x02"] {
            let refused = (0..3).filter(|parts| {
                let data = [&[choice], &[0xfe].repeat(*parts)[..], lie].concat();
                matches!(talk(&data, usize::MAX), Outcome::Refused(_))
            });
            assert_eq!(refused.count(), 1, "{choice} {lie:?}");
        }
    }
}

#[test]
fn dishonest_server_is_rejected_unless_its_message_is_unaffected() {
    let mut established = 0;
    let runs = each_seed(50, |seed| {
        let mut rng = Rng::new(seed);
        let mut bytes: Vec<u8> = (0..rng.next_u64() % 30).map(|_| rng.next_u64().to_le_bytes()[0]).collect();
        for byte in bytes.iter_mut().skip(1) {
            if rng.next_u64().is_multiple_of(4) {
                *byte = 0xfe;
            }
        }
        conversation(&bytes);
        established += u64::from(matches!(talk(&bytes, 3), Outcome::Established { .. }));
    });
    assert!((runs / 7..runs.max(2)).contains(&established), "{established} of {runs}");
}
