use super::*;
use crate::rng::Rng;
use crate::seeds::each_seed;

/// A server that streams, fails, recovers and disappears.
const STREAM: &[u8] =
    b"\x00\x00\x00\xfe\x01\x08\xfe\x01\x10\xfe\x00\x18\xfe\x00\x20\xfd\x00\x00\xfe\x00\x01\xfd\x00\x04";

#[test]
fn stream_is_read_in_pieces_of_any_length() {
    let watched = watch(STREAM, 1);
    assert_eq!((watched.replies, watched.streamed), (7, 2), "{}", watched.lines.join("\n"));
    assert!(watched.lines.iter().any(|line| line.contains("RSPrimary")), "{}", watched.lines.join("\n"));
    monitor_bytes(STREAM);
}

#[test]
fn run_ends_on_any_bytes() {
    let mut replies = 0;
    let runs = each_seed(50, |seed| {
        let mut rng = Rng::new(seed);
        let mut bytes = STREAM.repeat(2);
        for _ in 0..rng.next_u64() % 6 {
            let at = usize::try_from(rng.next_u64()).unwrap_or(0) % bytes.len();
            let byte = rng.next_u64().to_le_bytes()[0];
            if byte & 1 == 0 { bytes[at] = byte } else { bytes.insert(at, byte) }
        }
        monitor_bytes(&bytes);
        replies += watch(&bytes, 3).replies;
    });
    assert!(u64::from(replies) >= 2 * runs, "only {replies} replies were read: the changes are too large");
}
