/// The budget of each generator that judges steps with a model or an oracle. All of them together
/// take a few seconds, even in a build without optimization.
const SHORT: [(&str, u64); 11] = [
    ("pool", 600),
    ("mux", 200),
    ("monitor", 400),
    ("topology", 300),
    ("control", 150),
    ("search_pool", 4_000),
    ("search_mux", 3_000),
    ("search_monitor", 3_000),
    ("search_control", 1_000),
    ("fuzz_selection", 2_000),
    ("fuzz_topology", 200),
];

#[test]
fn short_hunts_find_nothing_without_a_planted_bug() {
    for (generator, budget) in SHORT {
        let hunted = super::hunt(generator, budget, std::path::Path::new("no corpus")).expect("a generator");
        assert_eq!(hunted.found, None, "{generator}");
    }
}
