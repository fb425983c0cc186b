//! Figures that are counted in the sources.

use std::fs;
use std::path::Path;

/// Counts in the sources of a crate, without its tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) functions: usize,
    pub(super) assertions: usize,
    /// Number of `unsafe` blocks, functions and implementations.
    pub(super) uses_of_unsafe: usize,
}

/// Counts in the `.rs` files of a folder.
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

/// Adds the counts of a text, without comments.
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
