use super::*;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

#[test]
fn control_characters_become_spaces() {
    let text = "no\r\nroot: done\u{1b}[2J\u{9b}1m\u{7f}é";
    assert_eq!(one_line(text).collect::<String>(), "no  root: done [2J 1m é");
    assert_eq!(one_line("a\u{2028}b\u{202e}c\u{2066}d").collect::<String>(), "a b c d");
}

#[test]
fn unsafe_characters_become_spaces_in_a_text_of_any_length() {
    let unsafe_ones = (0..=0x1f)
        .chain(0x7f..=0x9f)
        .chain([0x61c, 0x200e, 0x200f])
        .chain(0x2028..=0x202e)
        .chain(0x2066..=0x2069)
        .chain([0xfeff]);
    let unsafe_ones: Vec<char> = unsafe_ones.filter_map(char::from_u32).collect();
    for char in (0..=0x0010_ffff).filter_map(char::from_u32) {
        assert_eq!(is_unsafe(char), unsafe_ones.contains(&char), "{char:?}");
    }
    let text: String = unsafe_ones.iter().flat_map(|char| [*char, 'é']).collect();
    assert_eq!(OneLine(&text).to_string(), " é".repeat(unsafe_ones.len()));
    let long = "x".repeat(1000);
    assert_eq!(OneLine(&long).to_string(), long);
}

#[test]
fn text_is_cut_at_the_limit_between_characters() {
    let cut = |text: &str| one_line(text).collect::<String>();
    assert_eq!(cut(&"x".repeat(1000)), "x".repeat(PEER_TEXT_BYTES_MAX));
    assert_eq!(cut(&["a", &"é".repeat(200)].concat()), ["a", &"é".repeat(127)].concat());
    assert_eq!(cut(""), "");
}

#[test]
fn secret_is_found_anywhere_and_an_empty_one_nowhere() {
    assert!(reveals("user ann, password hunter2.", "hunter2"));
    assert!(!reveals("user ann", "hunter2"));
    assert!(!reveals("user ann", ""));
}
