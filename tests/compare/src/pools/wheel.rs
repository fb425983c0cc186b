//! Linked lists in an arena, and a timer wheel of such lists.

/// The index that marks the end of a list.
const NIL: u32 = u32::MAX;
/// Indices of the links of the queue and of the wheel.
pub(crate) const QUEUE: usize = 0;
const WHEEL: usize = 1;
/// Number of spokes of the wheel, each 2^24 ns (17 ms) wide: a turn takes 8.6 s. Entries with a
/// later deadline stay for another turn.
const SPOKES: usize = 512;
const SPOKE_BITS: u32 = 24;

/// Slots that are reused.
pub(crate) struct Arena<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
}

struct Place<T> {
    item: Option<T>,
    links: [Link; 2],
    due_ns: u64,
}

#[derive(Clone, Copy)]
struct Link {
    next: u32,
    previous: u32,
}

impl<T> Arena<T> {
    pub(crate) const fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn insert(&mut self, item: T) -> u32 {
        let link = Link { next: NIL, previous: NIL };
        let place = Place { item: Some(item), links: [link; 2], due_ns: u64::MAX };
        if let Some(free) = self.free.pop() {
            self.places[free as usize] = place;
            return free;
        }
        self.places.push(place);
        u32::try_from(self.places.len() - 1).expect("fewer than four billion")
    }

    pub(crate) fn remove(&mut self, place: u32) {
        self.places[place as usize].item = None;
        self.free.push(place);
    }

    pub(crate) fn at(&mut self, place: u32) -> &mut T {
        self.places[place as usize].item.as_mut().expect("the connection is in use")
    }
}

/// The first and last index of a list.
#[derive(Clone, Copy)]
pub(crate) struct List {
    first: u32,
    last: u32,
}

impl List {
    pub(crate) const fn new() -> Self {
        Self { first: NIL, last: NIL }
    }

    pub(crate) fn first(&self) -> Option<u32> {
        (self.first != NIL).then_some(self.first)
    }

    pub(crate) fn push<const LINK: usize, T>(&mut self, arena: &mut Arena<T>, place: u32) {
        arena.places[place as usize].links[LINK] = Link { next: NIL, previous: self.last };
        match self.last {
            NIL => self.first = place,
            last => arena.places[last as usize].links[LINK].next = place,
        }
        self.last = place;
    }

    pub(crate) fn remove<const LINK: usize, T>(&mut self, arena: &mut Arena<T>, place: u32) {
        let Link { next, previous } = arena.places[place as usize].links[LINK];
        match previous {
            NIL => self.first = next,
            previous => arena.places[previous as usize].links[LINK].next = next,
        }
        match next {
            NIL => self.last = previous,
            next => arena.places[next as usize].links[LINK].previous = previous,
        }
    }
}

/// Waiters by deadline, in spokes.
pub(crate) struct Wheel {
    spokes: [List; SPOKES],
    /// The spoke that was visited last, counted over all turns.
    turned_to: u64,
    /// The next entry to visit in that spoke.
    next: u32,
}

impl Wheel {
    pub(crate) const fn new() -> Self {
        Self { spokes: [List::new(); SPOKES], turned_to: 0, next: NIL }
    }

    fn spoke(&mut self, number: u64) -> &mut List {
        let place = usize::try_from(number % SPOKES as u64).expect("less than a turn");
        &mut self.spokes[place]
    }

    pub(crate) fn insert<T>(&mut self, arena: &mut Arena<T>, place: u32, due_ns: u64) {
        arena.places[place as usize].due_ns = due_ns;
        self.spoke(due_ns >> SPOKE_BITS).push::<WHEEL, T>(arena, place);
    }

    pub(crate) fn remove<T>(&mut self, arena: &mut Arena<T>, place: u32) {
        if self.next == place {
            self.next = arena.places[place as usize].links[WHEEL].next;
        }
        let due_ns = arena.places[place as usize].due_ns;
        self.spoke(due_ns >> SPOKE_BITS).remove::<WHEEL, T>(arena, place);
    }

    /// Returns an expired entry, which the caller must remove; `None` when the wheel has advanced
    /// to this instant.
    pub(crate) fn expired<T>(&mut self, arena: &Arena<T>, now_ns: u64) -> Option<u32> {
        let until = now_ns >> SPOKE_BITS;
        loop {
            while self.next != NIL {
                let place = self.next;
                self.next = arena.places[place as usize].links[WHEEL].next;
                if arena.places[place as usize].due_ns <= now_ns {
                    return Some(place);
                }
            }
            if self.turned_to >= until {
                return None;
            }
            // One turn visits all spokes, so earlier ones are skipped.
            self.turned_to = (self.turned_to + 1).max(until.saturating_sub(SPOKES as u64));
            let spoke = self.turned_to;
            self.next = self.spoke(spoke).first;
        }
    }
}
