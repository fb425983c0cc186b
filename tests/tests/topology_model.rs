//! Random simulated runs of a topology against its naive model, on the heap and in fixed memory.

use poolhouse_tests::fuzz::topology::{Counts, runs, topology};

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next().to_le_bytes()[0]).collect()
    }
}

/// SDAM-11..84, LOG-01..07, S8-S12. `POOLHOUSE_SEED=n` replays one seed.
#[test]
#[doc(alias("LOG-01", "LOG-02", "LOG-03", "LOG-04", "LOG-05", "LOG-06", "LOG-07", "S8", "S9", "S10", "S11", "S12"))]
fn two_thousand_random_runs_agree_with_the_model() {
    let seeds = match std::env::var("POOLHOUSE_SEED") {
        Ok(seed) => {
            let seed = seed.parse::<u64>().expect("POOLHOUSE_SEED is a number");
            seed..seed + 1
        }
        Err(_) => 0..2_000,
    };
    let all = seeds.clone().count() > 1;
    let mut seen = Counts::default();
    for seed in seeds {
        let mut random = Random(seed);
        let count = 100 + usize::try_from(random.next() % 1_000).expect("small");
        let bytes = random.bytes(count);
        match std::panic::catch_unwind(|| runs(&bytes)) {
            Ok(counts) => seen.add(&counts),
            Err(panic) => {
                eprintln!("replay with POOLHOUSE_SEED={seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    eprintln!("{seen:?}");
    let Counts { news, events, added, removed, primaries, stale, clears, late, sharded, seeds } = seen;
    let kinds = [news, events, added, removed, primaries, stale, clears, late, sharded, seeds];
    assert!(!all || kinds.iter().all(|&count| count >= 500), "some kinds did not occur often enough: {seen:?}");
}

/// Random texts of all kinds, as replies.
#[test]
fn texts_that_are_not_addresses_are_harmless() {
    let words =
        ["a", "b:1", "[::1]", "|", "\n", ",", ":", "]", "host:99999", "\0", " ", "rs", "\u{7}", "xxxxxxxxxxxxxxxx"];
    for seed in 0..2_000 {
        let mut random = Random(seed);
        let mut text = String::new();
        for _ in 0..random.next() % 60 {
            text.push_str(words[usize::from(random.next().to_le_bytes()[0]) % words.len()]);
        }
        topology(text.as_bytes());
    }
}
