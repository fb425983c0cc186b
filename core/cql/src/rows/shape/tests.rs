use super::*;
use crate::notation::Reader;
use alloc::string::ToString as _;

/// The texts of types in both forms are compared with those that their classes have in the tests of types.
#[test]
fn text_of_a_shape_is_that_of_its_type() {
    let string = |text: &str| [&u16::try_from(text.len()).expect("short").to_be_bytes(), text.as_bytes()].concat();
    let custom = |text: &str| [&[0, 0][..], &string(text)].concat();
    let udt = [&[0, 0x30][..], &string("k\n"), &string("pair"), &[0, 1], &string("a"), &[0, 9]].concat();
    let tuple =
        |parts: &[&[u8]]| [&[0, 0x31, 0, u8::try_from(parts.len()).expect("few")], &parts.concat()[..]].concat();
    let types = [
        alloc::vec![0, 9],
        alloc::vec![0x12, 0x34],
        udt.clone(),
        [&[0, 0x20][..], &udt].concat(),
        [&[0, 0x22, 0, 0x20][..], &[0, 13]].concat(),
        [&[0, 0x21, 0, 13][..], &udt].concat(),
        tuple(&[]),
        tuple(&[&[0, 9], &udt, &[0, 0x20, 0, 9]]),
        custom("VectorType(FrozenType(VectorType(UTF8Type,2)),1)"),
        custom("VectorType(FloatType)"),
        custom("of.some.Class\n(UTF8Type)"),
        custom("MapType(UserType(shop,70616972,61:Int32Type),TupleType(LongType,ReversedType(UTF8Type)))"),
        // Texts that are cut.
        custom(&"c".repeat(200)),
        custom(&alloc::format!("UserType(shop,{},61:Int32Type)", "61".repeat(200))),
        [&[0, 0x20].repeat(30)[..], &[0, 9]].concat(),
        tuple(&[&[0, 9][..]; 40]),
    ];
    for bytes in types {
        let kind = Type::read(&mut Reader::new(&bytes, 0), 0).expect("well-formed");
        let shape = Shape::of(kind, &mut 100).expect("few types");
        assert_eq!(shape.to_string(), kind.to_string());
    }
}
