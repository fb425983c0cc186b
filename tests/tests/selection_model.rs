//! Random selections against their naive model.

use poolhouse_tests::fuzz::selection::{Counts, selection};

/// splitmix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut value = *state;
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// `POOLHOUSE_SEED=n` replays one seed.
#[test]
fn fifty_thousand_random_selections_agree_with_the_model() {
    let seeds = match std::env::var("POOLHOUSE_SEED") {
        Ok(seed) => {
            let seed = seed.parse::<u64>().expect("POOLHOUSE_SEED is a number");
            seed..seed + 1
        }
        Err(_) => 0..50_000,
    };
    let all = seeds.end - seeds.start > 1;
    let mut seen = Counts::default();
    for seed in seeds {
        let mut state = seed;
        let bytes: Vec<u8> = (0..16).flat_map(|_| next(&mut state).to_le_bytes()).collect();
        match std::panic::catch_unwind(|| selection(&bytes)) {
            Ok(counts) => {
                seen.invalid += counts.invalid;
                seen.none += counts.none;
                seen.one += counts.one;
                seen.several += counts.several;
                seen.narrowed += counts.narrowed;
                seen.fell_back += counts.fell_back;
            }
            Err(panic) => {
                eprintln!("replay with POOLHOUSE_SEED={seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    let Counts { invalid, none, one, several, narrowed, fell_back } = seen;
    let kinds = [invalid, none, one, several, narrowed, fell_back];
    assert!(!all || kinds.iter().all(|&count| count >= 500), "some results did not occur often enough: {seen:?}");
}
