use super::format::{Fault, OperationKind, Test};
use super::matching::{compare_events, mismatch};
use super::run;
use serde_json::{Value, json};

fn file(change: impl FnOnce(&mut Value)) -> Value {
    let mut file = json!({
        "version": 1, "style": "unit", "description": "one connection is checked out and checked in",
        "operations": [
            { "name": "ready" },
            { "name": "checkOut", "label": "a" },
            { "name": "checkIn", "connection": "a" },
        ],
        "events": [
            { "type": "ConnectionCheckedOut", "connectionId": 1, "duration": 42, "address": "42" },
            { "type": "ConnectionCheckedIn", "connectionId": 1 },
        ],
        "ignore": [
            "ConnectionPoolCreated", "ConnectionPoolReady", "ConnectionCreated", "ConnectionReady",
            "ConnectionCheckOutStarted",
        ],
    });
    change(&mut file);
    file
}

fn fails(change: impl FnOnce(&mut Value), with: &str) {
    let error = run(&file(change).to_string()).expect_err("a file with wrong expectations passes");
    assert!(error.contains(with), "{error:?} does not contain {with:?}");
}

#[test]
fn forty_two_matches_any_value_that_is_present_and_not_null() {
    assert_eq!(mismatch(&json!(42), Some(&json!(0))), None);
    assert_eq!(mismatch(&json!("42"), Some(&json!({}))), None);
    assert!(mismatch(&json!(42), Some(&Value::Null)).is_some());
    assert!(mismatch(&json!(42), None).is_some());
}

#[test]
fn objects_match_by_the_expected_keys_and_lists_by_index() {
    let actual = json!({ "a": 1, "b": [1, 2, 3], "c": { "d": true } });
    assert_eq!(mismatch(&json!({ "a": 1, "b": [1, 2], "c": {} }), Some(&actual)), None);
    for wrong in [json!({ "a": 2 }), json!({ "a": "1" }), json!({ "b": [2] }), json!({ "c": { "e": 42 } }), json!([])] {
        assert!(mismatch(&wrong, Some(&actual)).is_some(), "{wrong}");
    }
}

#[test]
fn scalars_of_other_types_do_not_match() {
    assert!(mismatch(&json!(true), Some(&json!("true"))).is_some());
    assert!(mismatch(&json!(1), Some(&json!(true))).is_some());
    assert!(mismatch(&json!(null), Some(&json!(0))).is_some());
}

#[test]
fn events_beyond_the_expected_ones_are_allowed_and_missing_ones_are_not() {
    let seen = [json!({ "type": "A" }), json!({ "type": "B" }), json!({ "type": "A" })];
    let ignore = ["B".to_owned()];
    assert!(compare_events(&[json!({ "type": "A" })], &seen, &ignore).is_ok());
    assert!(compare_events(&[json!({ "type": "A" }), json!({ "type": "A" })], &seen, &ignore).is_ok());
    assert!(compare_events(&[json!({ "type": "A" }), json!({ "type": "B" })], &seen, &ignore).is_err());
    assert!(compare_events(&vec![json!({ "type": "A" }); 3], &seen, &ignore).is_err());
}

#[test]
fn correct_file_passes_and_wrong_ones_fail() {
    run(&file(|_| {}).to_string()).expect("it holds");
    fails(|file| file["events"][0]["connectionId"] = json!(2), "event 0: connectionId");
    fails(|file| file["events"][1]["reason"] = json!("stale"), "event 1: reason");
    fails(|file| file["ignore"] = json!([]), "event 0: connectionId");
    fails(|file| file["error"] = json!({ "type": "PoolClosedError" }), "no error");
    fails(|file| file["operations"][0] = json!({ "name": "close" }), "PoolClosedError");
    fails(|file| file["operations"][2]["connection"] = json!("b"), "no connection is checked out");
}

#[test]
fn unknown_parts_are_errors_and_not_skipped() {
    fails(|file| file["operations"][0]["name"] = json!("unready"), "unknown operation");
    fails(|file| file["operations"][0]["extra"] = json!(1), "unknown field: \"extra\"");
    fails(|file| file["poolOptions"] = json!({ "waitQueueSize": 3 }), "unknown field: \"waitQueueSize\"");
    fails(|file| file["ignore"][0] = json!("PoolCreated"), "unknown event type");
    fails(|file| file["events"][0]["type"] = json!("ConnectionDroped"), "unknown event type");
    fails(|file| file["operations"][0] = json!({ "name": "waitForEvent", "event": "X", "count": 1 }), "unknown event");
    fails(|file| file["version"] = json!(2), "version");
    fails(|file| file["failPoint"] = json!({ "configureFailPoint": "other", "mode": "off" }), "unknown fail point");
    fails(|file| file["surprise"] = json!({}), "unknown field: \"surprise\"");
    fails(|file| file["operations"][0]["thread"] = json!("nobody"), "no thread");
}

#[test]
fn an_error_is_compared_by_type_and_text() {
    let closed = |error: Value| {
        file(|file| {
            file["operations"] = json!([{ "name": "close" }, { "name": "checkOut" }]);
            file["events"] = json!([]);
            file["error"] = error;
        })
        .to_string()
    };
    let text = "Attempted to check out a connection from closed connection pool";
    run(&closed(json!({ "type": "PoolClosedError", "message": text, "address": 42 }))).expect("it holds");
    run(&closed(json!({ "type": "PoolClosedError", "message": text.to_uppercase() }))).expect_err("another text");
    run(&closed(json!({ "type": "WaitQueueTimeoutError", "message": text }))).expect_err("another type");
}

#[test]
fn wait_for_an_event_fails_after_its_timeout() {
    let blocked = |timeout: u64| {
        file(|file| {
            file["failPoint"] = json!({
                "configureFailPoint": "failCommand", "mode": "alwaysOn",
                "data": { "failCommands": ["hello"], "blockConnection": true, "blockTimeMS": 100 },
            });
            file["operations"] = json!([
                { "name": "ready" },
                { "name": "start", "target": "one" },
                { "name": "checkOut", "thread": "one" },
                { "name": "waitForEvent", "event": "ConnectionReady", "count": 1, "timeout": timeout },
            ]);
            file["events"] = json!([]);
        })
        .to_string()
    };
    run(&blocked(100)).expect("in time");
    let error = run(&blocked(99)).expect_err("too late");
    assert!(error.contains("timeout of the wait for 1 of ConnectionReady"), "{error}");
}

#[test]
fn main_thread_that_waits_for_an_impossible_event_is_stuck() {
    fails(
        |file| file["operations"][0] = json!({ "name": "waitForEvent", "event": "ConnectionReady", "count": 1 }),
        "stuck",
    );
}

#[test]
fn operations_of_every_kind_run_in_threads() {
    let text = file(|file| {
        file["operations"] = json!([
            { "name": "start", "target": "one" },
            { "name": "ready", "thread": "one" },
            { "name": "checkOut", "label": "a", "thread": "one" },
            { "name": "wait", "ms": 20, "thread": "one" },
            { "name": "checkIn", "connection": "a", "thread": "one" },
            { "name": "waitForEvent", "event": "ConnectionCheckedIn", "count": 1, "thread": "one" },
            { "name": "clear", "thread": "one" },
            { "name": "close", "thread": "one" },
            { "name": "waitForThread", "target": "one" },
        ]);
        file["ignore"] = json!(["ConnectionPoolCreated", "ConnectionCheckOutStarted"]);
        file["events"] = json!([
            { "type": "ConnectionPoolReady" },
            { "type": "ConnectionCreated", "connectionId": 1 },
            { "type": "ConnectionReady", "duration": 0 },
            { "type": "ConnectionCheckedOut" },
            { "type": "ConnectionCheckedIn" },
            { "type": "ConnectionPoolCleared", "interruptInUseConnections": false },
            { "type": "ConnectionClosed" },
            { "type": "ConnectionPoolClosed" },
        ]);
    });
    run(&text.to_string()).expect("it holds");
}

#[test]
fn fail_points_skip_and_count() {
    let point = |mode: Value, data: Value| {
        let text = file(|file| {
            file["failPoint"] = json!({ "configureFailPoint": "failCommand", "mode": mode, "data": data });
        });
        Test::parse(&text.to_string()).expect("understood").fail_point
    };
    let data = json!({ "failCommands": ["hello"], "errorCode": 91, "errorLabels": ["SystemOverloadedError"] });
    let skipping = point(json!({ "skip": 3 }), data.clone());
    assert_eq!((skipping.skip, skipping.times), (3, None));
    assert_eq!(skipping.fault, Some(Fault::Error { code: 91, overloaded: true }));
    assert_eq!(point(json!({ "times": 2 }), data.clone()).times, Some(2));
    assert_eq!(point(json!("alwaysOn"), data.clone()).times, None);
    assert_eq!(point(json!("off"), data).times, Some(0));
    let other = json!({ "failCommands": ["find"], "closeConnection": true });
    assert_eq!(point(json!("alwaysOn"), other).times, Some(0), "no find is sent while a connection is established");
}

#[test]
fn negative_background_interval_disables_background_work() {
    let options = |interval: i64| {
        let text = file(|file| file["poolOptions"] = json!({ "backgroundThreadIntervalMS": interval, "appName": "x" }));
        Test::parse(&text.to_string()).expect("understood").options
    };
    assert!(!options(-1).background);
    assert!(options(50).background);
}

#[test]
fn operation_keeps_its_thread() {
    let text = file(|file| file["operations"][0]["thread"] = json!("one"));
    let test = Test::parse(&text.to_string()).expect("understood");
    assert_eq!(test.operations[0].thread.as_deref(), Some("one"));
    assert_eq!(test.operations[0].kind, OperationKind::Ready);
}
