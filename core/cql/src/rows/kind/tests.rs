use super::*;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

/// A type in the form with numbers, whose only class is this one.
fn class_type(text: &str) -> Type<'_> {
    class::read(text)
}

fn custom(text: &str) -> Vec<u8> {
    [&[0, 0][..], &u16::try_from(text.len()).expect("short").to_be_bytes(), text.as_bytes()].concat()
}

const PACKAGE: &str = "org.apache.cassandra.db.marshal.";

#[test]
fn classes_have_the_types_of_their_values() {
    for (text, number, shown) in [
        ("AsciiType", id::ASCII, "ascii"),
        ("BooleanType", id::BOOLEAN, "boolean"),
        ("BytesType", id::BLOB, "blob"),
        ("ByteType", id::TINYINT, "tinyint"),
        ("CounterColumnType", id::COUNTER, "counter"),
        ("DateType", id::TIMESTAMP, "timestamp"),
        ("TimestampType", id::TIMESTAMP, "timestamp"),
        ("DecimalType", id::DECIMAL, "decimal"),
        ("DoubleType", id::DOUBLE, "double"),
        ("DurationType", id::DURATION, "duration"),
        ("FloatType", id::FLOAT, "float"),
        ("InetAddressType", id::INET, "inet"),
        ("Int32Type", id::INT, "int"),
        ("IntegerType", id::VARINT, "varint"),
        ("LexicalUUIDType", id::UUID, "uuid"),
        ("UUIDType", id::UUID, "uuid"),
        ("LongType", id::BIGINT, "bigint"),
        ("ShortType", id::SMALLINT, "smallint"),
        ("SimpleDateType", id::DATE, "date"),
        ("TimeType", id::TIME, "time"),
        ("TimeUUIDType", id::TIMEUUID, "timeuuid"),
        ("UTF8Type", id::VARCHAR, "varchar"),
        ("ListType(Int32Type)", Type::LIST, "list<int>"),
        ("SetType( UTF8Type )", Type::SET, "set<varchar>"),
        ("MapType(UTF8Type,ListType(Int32Type))", Type::MAP, "map<varchar, list<int>>"),
        ("TupleType(UTF8Type)", Type::TUPLE, "tuple<varchar>"),
        ("TupleType(UTF8Type, ByteType, of.some.Class)", Type::TUPLE, "tuple<varchar, tinyint, of.some.Class>"),
        ("UserType(shop,61646472657373,63697479:UTF8Type,7a6970:Int32Type)", Type::UDT, "shop.address"),
        ("UserType(shop , c3a4)", Type::UDT, "shop.ä"),
        ("FrozenType(ListType(FrozenType(SetType(Int32Type))))", Type::LIST, "list<set<int>>"),
        ("ReversedType(Int32Type)", id::INT, "int"),
        ("VectorType(FloatType, 3)", Type::CUSTOM, "vector<float, 3>"),
        ("VectorType(FrozenType(VectorType(UTF8Type,2)),1)", Type::CUSTOM, "vector<vector<varchar, 2>, 1>"),
        ("ListType(of.some.Class(UTF8Type,(a=>b),c))", Type::LIST, "list<of.some.Class(UTF8Type,(a=>b),c)>"),
    ] {
        for text in [text.to_string(), format!("{PACKAGE}{text}"), format!("FrozenType({text})")] {
            let kind = class_type(&text);
            assert_eq!((kind.id(), kind.to_string().as_str()), (number, shown), "{text}");
            assert_eq!(kind.class().is_some(), number == Type::CUSTOM, "{text}");
        }
    }
}

#[test]
fn classes_that_are_not_understood_are_unknown_as_a_whole() {
    let list = "ListType(";
    let deep = |depth: usize| format!("{}Int32Type{}", list.repeat(depth), ")".repeat(depth));
    for text in [
        "",
        "of.some.Class",
        "of.some.ListType(Int32Type)",
        "EmptyType",
        "CompositeType(UTF8Type,Int32Type)",
        "DynamicCompositeType(a=>BytesType,b=>AsciiType)",
        "ListType",
        "ListType()",
        "ListType(Int32Type",
        "ListType(Int32Type))",
        "ListType(Int32Type,Int32Type)",
        "ListType(Int32Type) Int32Type",
        "ListType(of.some.Class(()",
        "MapType(Int32Type)",
        "TupleType()",
        "TupleType(Int32Type,)",
        "TupleType(Int32Type Int32Type)",
        "Int32Type(Int32Type)",
        "FrozenType()",
        "FrozenType(Int32Type,Int32Type)",
        // Names that are not hexadecimal, of an odd length, or not UTF-8.
        "UserType(shop,address,63:UTF8Type)",
        "UserType(shop,616,63:UTF8Type)",
        "UserType(shop,61,6:UTF8Type)",
        "UserType(shop,61,ff:UTF8Type)",
        "UserType(shop,61,c3:UTF8Type)",
        "UserType(shop,61,c328:UTF8Type)",
        "UserType(shop,61,63 UTF8Type)",
        "UserType(shop)",
        "VectorType(FloatType)",
        "VectorType(FloatType,0)",
        "VectorType(FloatType,-1)",
        "VectorType(FloatType,x)",
        "VectorType(FloatType,1099511627776)",
        // These have no value: it would be longer than a length can be.
        "VectorType(FloatType,536870912)",
        "VectorType(FloatType,1073741824)",
        "VectorType(VectorType(FloatType,1073741824),1)",
        "VectorType(VectorType(FloatType,268435456),2)",
        "VectorType(UTF8Type,2147483648)",
        "VectorType(FloatType,99999999999999999999999)",
        "VectorType(FloatType,3,3)",
        // Whether elements have lengths is known for known classes only.
        "VectorType(of.some.Class,3)",
        "\u{0}\u{7f}",
        &deep(TYPE_DEPTH_MAX as usize + 1),
    ] {
        let kind = class_type(text);
        assert_eq!((kind.id(), kind.class(), kind.dimension()), (Type::CUSTOM, Some(text), None));
        assert_eq!((kind.element(), kind.map_value(), kind.udt_name(), kind.fields().count()), (None, None, None, 0));
    }
    assert_eq!(class_type(&deep(TYPE_DEPTH_MAX as usize)).id(), Type::LIST);
    for (text, dimension) in [
        ("VectorType(FloatType,536870911)", 0x1fff_ffff),
        ("VectorType(VectorType(FloatType,268435455),2)", 2),
        ("VectorType(BooleanType,2147483647)", 0x7fff_ffff),
        ("VectorType(UTF8Type,2147483647)", 0x7fff_ffff),
    ] {
        assert_eq!(class_type(text).dimension(), Some(dimension), "{text}");
    }
}

/// That their reading takes linear time is tested in `tests/hosted/tests/hostile_hello.rs`.
#[test]
fn hostile_classes_are_read_and_have_short_texts() {
    let half = usize::from(u16::MAX) / 2;
    let fields = format!("TupleType({}Int32Type)", "Int32Type,".repeat(6_000));
    let nested = "VectorType(".repeat(5_900);
    let wide =
        format!("{}{}{}", "TupleType(".repeat(30), "ByteType,".repeat(6_000), "ByteType".to_string() + &")".repeat(30));
    let texts = [
        "(".repeat(2 * half),
        ",".repeat(2 * half),
        "a".repeat(2 * half),
        // Parameters of an unknown class.
        format!("x{}", "(".repeat(2 * half)),
        format!("x{}{}", "(".repeat(half), ")".repeat(half)),
        format!("x({})", "()".repeat(half)),
    ];
    for text in texts.iter().chain([&fields, &nested, &wide]) {
        for text in [text.clone(), format!("FrozenType({text})"), format!("UserType(k,61,61:{text})")] {
            let kind = class_type(&text);
            let shown = kind.to_string();
            assert!(shown.len() <= TYPE_TEXT_BYTES_MAX + 2, "{shown}");
            let _ = (kind.element(), kind.fields().count(), kind.dimension());
        }
    }
    assert_eq!(class_type(&fields).fields().count(), 6_001);
}

/// The names of the fields, and their types.
fn fields(kind: Type<'_>) -> Vec<(String, String)> {
    kind.fields().map(|(name, kind)| (name.to_string(), kind.to_string())).collect()
}

#[test]
fn both_forms_have_the_same_content() {
    let string = |text: &str| custom(text)[2..].to_vec();
    let numbered = |parts: &[&[u8]]| parts.concat();
    let udt = numbered(&[
        &[0, 0x30],
        &string("shop"),
        &string("pair"),
        &[0, 2],
        &string("a"),
        &[0, 9],
        &string("ä"),
        &[0, 13],
    ]);
    let map = [&[0, 0x21][..], &udt, &[0, 0x20, 0, 2]].concat();
    let class = "MapType(UserType(shop,70616972,61:Int32Type,c3a4:UTF8Type),ListType(LongType))";
    let text = custom(class);
    let [wire, class] = [&map, &text].map(|bytes| Type::read(&mut Reader::new(bytes, 0), 0).expect("well-formed"));
    for kind in [wire, class] {
        assert_eq!(kind.to_string(), "map<shop.pair, list<bigint>>");
        let udt = kind.element().expect("keys");
        assert_eq!(udt.udt_name().map(|(keyspace, name)| (keyspace, name.to_string())), Some(("shop", "pair".into())));
        assert!(udt.udt_name().is_some_and(|(_, name)| name == *"pair"));
        let expected = [("a", "int"), ("ä", "varchar")].map(|(name, kind)| (name.to_string(), kind.to_string()));
        assert_eq!(fields(udt), expected);
        let list = kind.map_value().expect("values");
        assert_eq!((list.id(), list.element().map(|one| one.id())), (Type::LIST, Some(id::BIGINT)));
        assert_eq!((list.map_value(), list.dimension(), list.class()), (None, None, None));
    }
    let names =
        |kind: Type<'_>| kind.element().expect("keys").fields().map(|(name, _)| name.chars().count()).sum::<usize>();
    assert_eq!(names(wire), names(class));
    let [plain, hex] = [wire, class].map(|kind| kind.element().expect("keys").fields().nth(1).expect("a field").0);
    assert_eq!(plain, hex);
    assert_eq!((plain.as_str(), hex.as_str()), (Some("ä"), None));
    let tuple = [0, 0x31, 0, 2, 0, 9, 0, 13];
    let tuple = Type::read(&mut Reader::new(&tuple, 0), 0).expect("well-formed");
    assert_eq!(fields(tuple), [("".into(), "int".into()), ("".into(), "varchar".into())]);
    let vector = class_type("VectorType(VectorType(Int32Type,2),3)");
    assert_eq!(vector.element().and_then(|inner| inner.dimension()), Some(2));
}

#[test]
fn lengths_of_the_elements_of_vectors_are_fixed_or_their_own() {
    for (element, bytes) in [
        ("BooleanType", Some(1)),
        ("Int32Type", Some(4)),
        ("FloatType", Some(4)),
        ("LongType", Some(8)),
        ("DoubleType", Some(8)),
        ("TimestampType", Some(8)),
        ("DateType", Some(8)),
        ("UUIDType", Some(16)),
        ("LexicalUUIDType", Some(16)),
        ("TimeUUIDType", Some(16)),
        ("VectorType(Int32Type,3)", Some(12)),
        ("FrozenType(VectorType(VectorType(LongType,2),3))", Some(48)),
        ("VectorType(UTF8Type,3)", None),
        ("AsciiType", None),
        ("ByteType", None),
        ("BytesType", None),
        ("CounterColumnType", None),
        ("DecimalType", None),
        ("DurationType", None),
        ("InetAddressType", None),
        ("IntegerType", None),
        ("ShortType", None),
        ("SimpleDateType", None),
        ("TimeType", None),
        ("UTF8Type", None),
        ("ListType(Int32Type)", None),
        ("SetType(Int32Type)", None),
        ("MapType(Int32Type,Int32Type)", None),
        ("TupleType(Int32Type)", None),
        ("UserType(k,61)", None),
    ] {
        let text = format!("VectorType({element},7)");
        let vector = class_type(&text).vector().expect(element);
        assert_eq!((vector.dimension, vector.element_bytes), (7, bytes), "{element}");
    }
}

#[test]
fn text_of_a_type_is_short_and_has_no_control_characters() {
    let udt = "UserType(k,0a1b,61:Int32Type)";
    assert_eq!(class_type(udt).to_string(), "k.\\n\\u{1b}");
    assert_eq!(format!("{:?}", class_type("ListType(Int32Type)")), "Type(list<int>)");
    assert_eq!(class_type("a\nb").to_string(), "a\\nb");
    let long = format!("ListType({})", "é".repeat(100));
    assert_eq!(class_type(&long).to_string(), format!("ListType({}..", "é".repeat(43)));
    let number = Type::read(&mut Reader::new(&[0x12, 0x34], 0), 0).expect("a number");
    assert_eq!(number.to_string(), "type 0x1234");
    let tuple = Type::read(&mut Reader::new(&[0, 0x31, 0, 0], 0), 0).expect("a tuple without fields");
    assert_eq!(tuple.to_string(), "tuple<>");
}

#[test]
fn types_are_equal_by_their_content() {
    let name = |text: &str| custom(text)[2..].to_vec();
    let read = |bytes: &[u8]| -> (u16, bool) {
        let kind = Type::read(&mut Reader::new(bytes, 0), 0).expect("well-formed");
        // Other bytes before and after it change nothing.
        let shifted = [&[7; 5][..], bytes, &[1, 2, 3]].concat();
        let other = Type::read(&mut Reader::new(&shifted[5..], 5), 0).expect("well-formed");
        (kind.id(), kind == other)
    };
    // The number and the names of a user-defined type, then its fields.
    let udt = |keyspace: &str, called: &str, fields: &[(&str, &[u8])]| {
        let count = u16::try_from(fields.len()).expect("few").to_be_bytes();
        let fields: Vec<u8> = fields.iter().flat_map(|(field, kind)| [&name(field), *kind].concat()).collect();
        [&[0, 0x30][..], &name(keyspace), &name(called), &count, &fields].concat()
    };
    let (int, text): (&[u8], &[u8]) = (&[0, 9], &[0, 13]);
    let tuple = |inner: &[u8]| [&[0, 0x31, 0, 2, 0, 9][..], &[0, 0x20], inner].concat();
    let all: Vec<Vec<u8>> = [
        int.to_vec(),
        text.to_vec(),
        alloc::vec![0x12, 0x34],
        [&[0, 0x20][..], int].concat(),
        [&[0, 0x22][..], int].concat(),
        [&[0, 0x21][..], int, text].concat(),
        [&[0, 0x21][..], text, int].concat(),
        alloc::vec![0, 0x31, 0, 1, 0, 9],
        alloc::vec![0, 0x31, 0, 2, 0, 9, 0, 9],
        alloc::vec![0, 0x31, 0, 0],
        // A change deep in a tuple.
        tuple(&tuple(&udt("k", "u", &[("a", int)]))),
        tuple(&tuple(&udt("k", "u", &[("a", text)]))),
        udt("k", "u", &[("a", int), ("b", int)]),
        udt("k", "u", &[("b", int), ("a", int)]),
        udt("k", "u", &[("a", int), ("b", text)]),
        udt("k", "u", &[("a", int)]),
        udt("k", "u", &[("a", int), ("b", int), ("c", int)]),
        udt("k", "v", &[("a", int), ("b", int)]),
        udt("l", "u", &[("a", int), ("b", int)]),
        custom("VectorType(FloatType,3)"),
        custom("VectorType(FloatType,4)"),
        custom("VectorType(DoubleType,3)"),
        custom("VectorType(VectorType(FloatType,3),3)"),
        custom("of.some.Class"),
        custom("of.some.Class(UTF8Type)"),
        custom("of.some.Other"),
        [&[0, 0x20][..], &custom("VectorType(FloatType,3)")].concat(),
        [&[0, 0x20][..], &custom("VectorType(FloatType,4)")].concat(),
    ]
    .into();
    for one in &all {
        assert!(read(one).1, "{one:?}");
        for two in all.iter().filter(|two| *two != one) {
            let [one, two] = [one, two].map(|bytes| Type::read(&mut Reader::new(bytes, 0), 0).expect("well-formed"));
            assert_ne!(one, two, "{one:?} {two:?}");
        }
    }
    for (bytes, class) in [
        (int.to_vec(), "Int32Type"),
        ([&[0, 0x20][..], int].concat(), "FrozenType( ListType(org.apache.cassandra.db.marshal.Int32Type) )"),
        ([&[0, 0x21][..], int, text].concat(), "MapType(Int32Type,UTF8Type)"),
        (alloc::vec![0, 0x31, 0, 2, 0, 9, 0, 13], "TupleType(Int32Type,UTF8Type)"),
        (udt("k", "u", &[("a", int), ("ä", text)]), "UserType(k,75,61:Int32Type,c3a4:UTF8Type)"),
        ([&[0, 0x20][..], &custom("VectorType(FloatType,3)")].concat(), "ListType(VectorType( FloatType , 3 ))"),
    ] {
        let wire = Type::read(&mut Reader::new(&bytes, 0), 0).expect("well-formed");
        assert_eq!(wire, class_type(class));
        assert_eq!(class_type(class), wire);
        assert_eq!(class_type(class), class_type(&format!("FrozenType({class})")));
        assert_ne!(wire, class_type(&format!("SetType({class})")));
    }
    assert_ne!(class_type("UserType(k,75,61:Int32Type,62:UTF8Type)"), class_type("UserType(k,75,61:Int32Type)"));
    assert_ne!(class_type("TupleType(Int32Type)"), class_type("TupleType(Int32Type,Int32Type)"));
    // The deepest types, and long ones.
    let deepest = [
        &[0, 0x20].repeat(TYPE_DEPTH_MAX as usize)[..],
        &custom(&format!("{}Int32Type{}", "SetType(".repeat(32), ")".repeat(32))),
    ]
    .concat();
    assert!(read(&deepest).1);
    let long = format!("{}{}Int32Type{}", "TupleType(".repeat(30), "ByteType,".repeat(6_000), ")".repeat(30));
    assert_eq!(class_type(&long), class_type(&format!("FrozenType({long})")));
    assert_ne!(class_type(&long), class_type(&long.replace("Int32Type", "ByteType")));
}
