use super::*;
use bson::doc;

fn of(document: bson::Document) -> Read {
    read(&document.to_vec().expect("it can be written"))
}

#[test]
fn every_kind_of_server_is_described() {
    let cases = [
        (doc! { "ok": 1 }, ServerType::Standalone),
        (doc! { "ok": 1.0, "msg": "isdbgrid" }, ServerType::Mongos),
        (doc! { "ok": true, "isreplicaset": true }, ServerType::RsGhost),
        (doc! { "ok": 1, "setName": "rs", "isWritablePrimary": true, "hosts": ["a", "b"] }, ServerType::RsPrimary),
        (doc! { "ok": 1, "setName": "rs", "ismaster": 1, "hosts": ["a"], "me": "A:27017" }, ServerType::RsPrimary),
        (doc! { "ok": 1, "setName": "rs", "secondary": true, "hosts": ["a"], "primary": "b" }, ServerType::RsSecondary),
        (doc! { "ok": 1, "setName": "rs", "arbiterOnly": true, "arbiters": ["a"] }, ServerType::RsArbiter),
        (doc! { "ok": 1, "setName": "rs", "hidden": true, "secondary": true }, ServerType::RsOther),
    ];
    for (document, server_type) in cases {
        assert_eq!(of(document), Read::Described(server_type));
    }
}

#[test]
fn document_that_is_not_a_reply_is_rejected() {
    assert_eq!(of(doc! {}), Read::Refused);
    assert_eq!(of(doc! { "ok": "yes" }), Read::Refused);
    assert_eq!(of(doc! { "ok": 1, "hosts": [1] }), Read::Refused);
    assert_eq!(of(doc! { "ok": 1, "minWireVersion": 3 }), Read::Refused);
    assert_eq!(of(doc! { "ok": 0, "code": 91 }), Read::Failed);
    assert_eq!(read(&[5, 0, 0, 0, 1]), Read::Malformed);
}
