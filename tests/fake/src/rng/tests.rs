use super::Rng;
use crate::choices::Choices;

#[test]
fn the_same_seed_draws_the_same_numbers() {
    let draw = |seed| {
        let mut rng = Rng::new(seed);
        (0..100).map(|_| rng.next_u64()).collect::<Vec<_>>()
    };
    assert_eq!(draw(7), draw(7));
    assert_ne!(draw(7), draw(8));
}

#[test]
fn numbers_are_those_of_the_published_algorithm() {
    // State 1, 2, 3, 4: the first outputs of the authors' xoshiro256++.
    let mut rng = Rng { state: [1, 2, 3, 4] };
    let drawn: Vec<u64> = (0..4).map(|_| rng.next_u64()).collect();
    assert_eq!(drawn, [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386]);
}

#[test]
fn streams_of_one_seed_differ() {
    assert_ne!(Rng::stream(1, "options"), Rng::stream(1, "operations"));
    assert_eq!(Rng::stream(1, "options"), Rng::stream(1, "options"));
}

#[test]
fn every_choice_is_drawn_and_none_beyond_the_bound() {
    let mut rng = Rng::new(3);
    let mut seen = [0_u32; 7];
    for _ in 0..7_000 {
        seen[rng.below(7) as usize] += 1;
    }
    assert!(seen.iter().all(|&count| count > 800), "{seen:?}");
}
