use super::*;

#[test]
fn names_of_types_have_no_modules_and_no_lifetimes() {
    for (full, expected) in [
        ("i64", Some("i64")),
        ("alloc::vec::Vec<core::option::Option<i64>>", Some("Vec<Option<i64>>")),
        ("(i32, alloc::string::String)", Some("(i32, String)")),
        ("[f32; 3]", Some("[f32; 3]")),
        ("&str", Some("&str")),
        ("app::Row<'_>", Some("Row")),
        ("app::Row<'_, app::A>", Some("Row<A>")),
        ("app::_::<impl serde_core::de::Deserialize for app::Row>::deserialize::__DeserializeWith", None),
        ("serde::__private228::de::content::Content", None),
        ("serde::de::ignored_any::IgnoredAny", None),
        ("serde_core::private::content::Content", None),
        ("alloc::vec::Vec<serde_core::private::content::Content>", None),
        ("serde_core::de::ignored_any::IgnoredAny", None),
        ("app::serde_core_row::Row", Some("Row")),
        ("app::f::{{closure}}::T", None),
    ] {
        assert_eq!(rust_name(full).as_deref(), expected, "{full}");
    }
    let long = rust_name(&"Vec<".repeat(100)).expect("a name");
    assert_eq!(long.len(), RUST_BYTES_MAX + 2);
}
