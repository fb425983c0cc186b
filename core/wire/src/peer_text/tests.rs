use super::*;
use alloc::string::String;

#[test]
fn control_characters_become_spaces() {
    let text = "no\r\nroot: done\u{1b}[2J\u{9b}1m\u{7f}é";
    assert_eq!(one_line(text).collect::<String>(), "no  root: done [2J 1m é");
    assert_eq!(one_line("a\u{2028}b\u{202e}c\u{2066}d").collect::<String>(), "a b c d");
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
