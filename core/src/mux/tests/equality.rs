//! Equality, hashes and copies of a pool.

use super::*;
use crate::storage::tests::hash;

fn copies_go_their_own_ways<M: MuxMemory>()
where
    Mux<M>: Clone + PartialEq,
{
    let mut world = World::<M>::new(SMALL);
    world.establish();
    let stream = world.stream();
    let _others: Vec<_> = (0..3).map(|_| world.stream()).collect();
    let waiter = world.waiter();
    let mut copy = world.mux.clone();
    assert!(copy == world.mux);
    assert_eq!(hash(&copy), hash(&world.mux));

    let (conn, id) = (stream.conn(), i32::from(stream.id()));
    assert_eq!(copy.handle_reply(world.now, conn, id, &mut ()), Ok(Reply::Request));
    assert!(copy != world.mux, "one has the reply");
    assert_ne!(hash(&copy), hash(&world.mux));
    assert_eq!((copy.state().in_flight, world.state().in_flight), (4, 4), "the reply made room for who waits");
    assert_eq!(world.mux.claim(world.now, waiter), MuxClaim::Waiting, "the other still waits for it");
    assert!(matches!(copy.claim(world.now, waiter), MuxClaim::Granted(_)), "ids are those of the original");
    copy.assert_invariants();

    let mut later = world.mux.clone();
    later.handle_timeout(world.now.saturating_add(Duration::from_millis(1)), &mut ());
    assert!(later != world.mux, "the clocks differ");
    assert_ne!(hash(&later), hash(&world.mux));
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
    let mut unused = world(SMALL);
    let mut used = world(SMALL);
    unused.establish();
    used.establish();
    assert_eq!(hash(&used.mux), hash(&unused.mux));
    let stream = used.stream();
    used.release(stream, Written::No);
    assert_eq!(used.state(), unused.state());
    assert_ne!(hash(&used.mux), hash(&unused.mux), "the next id is another one");
    for world in [&mut used, &mut unused] {
        world.act(|mux, now, seen| mux.close(now, seen));
        assert_eq!(world.closed.len(), 1);
    }
    assert!(used.mux != unused.mux);
    assert_eq!(hash(&used.mux), hash(&unused.mux));
}

/// A stream is returned to its pool, and the same one to the pool's copy.
#[cfg(feature = "sim")]
#[test]
fn stream_can_be_released_to_a_copy() {
    let mut world = world(SMALL);
    world.establish();
    let stream = world.stream();
    let same = stream.cloned();
    assert_eq!((&same, same.conn(), same.id(), same.mux()), (&stream, stream.conn(), stream.id(), stream.mux()));
    let mut copy = world.mux.clone();
    world.release(stream, Written::No);
    assert_eq!((world.state().in_flight, copy.state().in_flight), (0, 1));
    assert_eq!(copy.release(world.now, same, Written::No, &mut ()), Ok(()));
    assert!(copy == world.mux);
}
