//! What is counted by looking at the sources.

use std::fs;
use std::path::Path;

/// What is counted of a crate's sources, its tests left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) functions: usize,
    pub(super) assertions: usize,
    /// Blocks, functions and implementations.
    pub(super) uses_of_unsafe: usize,
}

/// Counts what is in a folder's `.rs` files.
pub(super) fn count(folder: &Path) -> Counted {
    let mut counted = Counted::default();
    walk(folder, &mut counted);
    counted
}

fn walk(folder: &Path, counted: &mut Counted) {
    for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            walk(&path, counted);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            add(&fs::read_to_string(&path).unwrap_or_default(), counted);
        }
    }
}

/// Adds what is in a text. Comments do not count.
pub(super) fn add(text: &str, counted: &mut Counted) {
    for line in text.lines() {
        let code = line.split("//").next().unwrap_or("").trim();
        let has = |word: &str| {
            code.match_indices(word).any(|(at, _)| {
                !code[..at].ends_with(|letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '"')
            })
        };
        counted.functions += usize::from(has("fn ") && !code.ends_with(';'));
        let asserts =
            ["assert!(", "assert_eq!(", "assert_ne!(", "debug_assert!(", "debug_assert_eq!(", "debug_assert_ne!("];
        counted.assertions += usize::from(asserts.iter().any(|word| has(word)));
        counted.uses_of_unsafe += usize::from(["unsafe {", "unsafe fn ", "unsafe impl "].iter().any(|word| has(word)));
    }
}
