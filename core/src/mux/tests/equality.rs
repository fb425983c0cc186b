//! Equality, hashes and copies of a pool.

use super::*;
use crate::storage::tests::hash;

fn copies_go_their_own_ways<M: MuxMemory>()
where
    Mux<M>: Clone + PartialEq,
{
    let mut rig = Rig::<M>::new(SMALL);
    rig.establish();
    let stream = rig.stream();
    let _others: Vec<_> = (0..3).map(|_| rig.stream()).collect();
    let waiter = rig.waiter();
    let mut copy = rig.mux.clone();
    assert!(copy == rig.mux);
    assert_eq!(hash(&copy), hash(&rig.mux));

    let (conn, id) = (stream.conn(), i32::from(stream.id()));
    assert_eq!(copy.handle_reply(rig.now, conn, id, &mut ()), Ok(Reply::Request));
    assert!(copy != rig.mux, "one has the reply");
    assert_ne!(hash(&copy), hash(&rig.mux));
    assert_eq!((copy.state().in_flight, rig.state().in_flight), (4, 4), "the reply made room for who waits");
    assert_eq!(rig.mux.claim(rig.now, waiter), MuxClaim::Waiting, "the other still waits for it");
    assert!(matches!(copy.claim(rig.now, waiter), MuxClaim::Granted(_)), "ids are those of the original");
    copy.assert_invariants();

    let mut later = rig.mux.clone();
    later.handle_timeout(rig.now.saturating_add(Duration::from_millis(1)), &mut ());
    assert!(later != rig.mux, "the clocks differ");
    assert_ne!(hash(&later), hash(&rig.mux));
}

#[test]
fn copies_on_the_heap_and_in_fixed_memory_are_equal_and_independent() {
    copies_go_their_own_ways::<MuxOnHeap>();
    copies_go_their_own_ways::<MuxFixed<3, 3, { stream_words(8) }>>();
}

/// Two pools with equal future behavior have equal hashes, whatever ids closed connections had
/// used.
#[test]
fn hash_omits_the_stream_ids_of_closed_connections() {
    let mut unused = rig(SMALL);
    let mut used = rig(SMALL);
    unused.establish();
    used.establish();
    assert_eq!(hash(&used.mux), hash(&unused.mux));
    let stream = used.stream();
    used.release(stream, Written::No);
    assert_eq!(used.state(), unused.state());
    assert_ne!(hash(&used.mux), hash(&unused.mux), "the next id is another one");
    for rig in [&mut used, &mut unused] {
        rig.act(|mux, now, seen| mux.close(now, seen));
        assert_eq!(rig.closed.len(), 1);
    }
    assert!(used.mux != unused.mux);
    assert_eq!(hash(&used.mux), hash(&unused.mux));
}

/// Searches copy a pool together with its streams. No other code can copy a stream.
#[cfg(feature = "sim")]
#[test]
fn stream_that_a_search_has_copied_is_released_to_the_copy_of_its_pool() {
    let mut rig = rig(SMALL);
    rig.establish();
    let stream = rig.stream();
    let same = stream.cloned();
    assert_eq!((&same, same.conn(), same.id(), same.mux()), (&stream, stream.conn(), stream.id(), stream.mux()));
    let mut copy = rig.mux.clone();
    rig.release(stream, Written::No);
    assert_eq!((rig.state().in_flight, copy.state().in_flight), (0, 1));
    assert_eq!(copy.release(rig.now, same, Written::No, &mut ()), Ok(()));
    assert!(copy == rig.mux);
}
