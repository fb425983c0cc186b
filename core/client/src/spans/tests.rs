//! Options, and the collection of a command. The tests of `poolhouse-hosted` have the spans.

use super::*;
use alloc::vec::Vec;
use poolhouse_wire::bson::DocumentWriter;

fn from(enabled: &str, length: &str) -> TracingOptions {
    let values = [
        ("OTEL_RUST_INSTRUMENTATION_MONGODB_ENABLED", enabled),
        ("OTEL_RUST_INSTRUMENTATION_MONGODB_QUERY_TEXT_MAX_LENGTH", length),
    ];
    TracingOptions::from_environment(|name| {
        values.iter().find(|(known, value)| *known == name && *value != "unset").map(|(_, value)| *value)
    })
}

#[test]
fn environment_turns_spans_on() {
    assert_eq!(from("unset", "unset"), TracingOptions::DEFAULT);
    assert_eq!(from("TRUE", "20"), TracingOptions::DEFAULT.enabled(true).query_text_length_max(20));
    for (value, is_on) in [("1", true), (" yes ", true), ("false", false), ("0", false), ("", false), ("on?", false)] {
        assert_eq!(from(value, "unset").enabled, is_on, "{value}");
    }
    for invalid in ["-1", "", "many", "99999999999999999999999999"] {
        assert_eq!(from("true", invalid).query_text_length_max, 0, "{invalid}");
    }
}

#[test]
fn only_known_commands_have_a_collection() {
    let of = |database: &str, name: &str| {
        let mut bytes = Vec::new();
        let write = |body: &mut DocumentWriter<'_, Vec<u8>>| body.str(name, "c")?.str("collection", "d").map(drop);
        DocumentWriter::write(&mut bytes, write).expect("room");
        collection(database, RawDocument::new(&bytes).expect("BSON")).map(String::from)
    };
    assert_eq!(of("db", "find").as_deref(), Some("c"));
    assert_eq!(of("db", "getMore").as_deref(), Some("d"));
    for name in ["createUser", "dropUser", "usersInfo", "configureFailPoint", "renameCollection", "ping"] {
        assert_eq!(of("db", name), None, "{name}");
    }
    assert_eq!(of("admin", "find"), None);
    assert_eq!(collection("db", RawDocument::EMPTY), None);
    let mut bytes = Vec::new();
    DocumentWriter::write(&mut bytes, |body| body.int32("aggregate", 1).map(drop)).expect("room");
    assert_eq!(collection("db", RawDocument::new(&bytes).expect("BSON")), None, "of the whole database");
}

#[test]
fn text_leaves_fields_of_sessions_out() {
    let text = |names: &[&str]| {
        let (mut bytes, mut kept) = (Vec::new(), Vec::new());
        let write = |body: &mut DocumentWriter<'_, Vec<u8>>| {
            names.iter().try_for_each(|name| body.document(name, |inner| inner.int32("lsid", 1).map(drop)).map(drop))
        };
        DocumentWriter::write(&mut bytes, write).expect("room");
        let text = shown(RawDocument::new(&bytes).expect("BSON"), &mut kept).relaxed_json().to_string();
        (text, kept.is_empty())
    };
    assert_eq!(text(&["find"]), (r#"{"find":{"lsid":1}}"#.into(), true), "no copy");
    let all = ["find", "lsid", "filter", "$clusterTime", "$db", "signature"];
    assert_eq!(text(&all), (r#"{"find":{"lsid":1},"filter":{"lsid":1}}"#.into(), false));
    assert_eq!(text(&["lsid"]).0, "{}");
}

#[test]
fn malformed_list_of_cursors_has_no_id() {
    let id = |name: &str, ids: &[RawValue<'_>]| {
        let mut bytes = Vec::new();
        let write = |body: &mut DocumentWriter<'_, Vec<u8>>| {
            body.array(name, |list| ids.iter().try_for_each(|id| list.value(*id).map(drop))).map(drop)
        };
        DocumentWriter::write(&mut bytes, write).expect("room");
        first_killed(RawDocument::new(&bytes).expect("BSON"))
    };
    assert_eq!(id("cursors", &[RawValue::Int64(7), RawValue::Int64(8)]), Some(7));
    assert_eq!(id("cursors", &[RawValue::String("7")]), None);
    assert_eq!(id("cursors", &[]), None);
    assert_eq!(id("others", &[RawValue::Int64(7)]), None);
}
