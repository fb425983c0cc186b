/// The budget of each generator that judges steps with a model or an oracle. All of them together
/// take a few seconds, even in a build without optimization.
const SHORT: [(&str, u64); 8] = [
    ("pool", 300),
    ("mux", 100),
    ("monitor", 300),
    ("topology", 150),
    ("control", 80),
    ("search_control", 600),
    ("fuzz_selection", 2_000),
    ("fuzz_topology", 100),
];

#[test]
fn short_hunts_find_nothing_without_a_planted_bug() {
    for (generator, budget) in SHORT {
        let hunted = super::hunt(generator, budget, std::path::Path::new("no corpus")).expect("a generator");
        assert_eq!(hunted.found, None, "{generator}");
    }
}
