//! Fail points, by command and by call.

use super::super::{FailPoint, FailPointMode, hello};
use super::*;

fn configure(client: &mut BlockingClient, mode: impl Into<bson::Bson>, data: Document) -> Document {
    let command = doc! { "configureFailPoint": "failCommand", "mode": mode.into(), "data": data };
    client.run("admin", command).unwrap()
}

#[test]
fn times_fails_that_number_of_matching_commands() {
    let (_server, mut client) = connected();
    let data = doc! { "failCommands": ["ping"], "errorCode": 91, "errorLabels": ["One", "Two"] };
    assert_eq!(configure(&mut client, doc! { "times": 2 }, data.clone()).get_i64("count").unwrap(), 0);
    for _ in 0..2 {
        client.run("admin", doc! { "buildInfo": 1 }).unwrap();
        let reply = client.run("admin", ping()).unwrap();
        assert_eq!(code(&reply), 91);
        assert_eq!(reply.get_str("codeName").unwrap(), "ShutdownInProgress");
        assert_eq!(reply.get_array("errorLabels").unwrap().len(), 2);
    }
    assert!(is_ok(&client.run("admin", ping()).unwrap()));
    assert_eq!(configure(&mut client, "off", doc! {}).get_i64("count").unwrap(), 2);
}

#[test]
fn skip_lets_that_number_of_commands_pass() {
    let (_server, mut client) = connected();
    configure(&mut client, doc! { "skip": 2 }, doc! { "failCommands": ["ping"], "errorCode": 1 });
    let codes: Vec<bool> = (0..4).map(|_| is_ok(&client.run("admin", ping()).unwrap())).collect();
    assert_eq!(codes, [true, true, false, false]);
}

#[test]
fn probability_fires_sometimes() {
    let (server, mut client) = connected();
    configure(&mut client, doc! { "activationProbability": 0.5 }, doc! { "failCommands": ["ping"], "errorCode": 2 });
    let failed = (0..200).filter(|_| !is_ok(&client.run("admin", ping()).unwrap())).count();
    assert!((50..150).contains(&failed), "{failed} of 200");
    server.set_fail_point(FailPoint::new(FailPointMode::Probability(0.0), &["ping"]).error(2));
    assert!((0..50).all(|_| is_ok(&client.run("admin", ping()).unwrap())));
}

/// Every hello of the application counts, including that of the handshake.
#[test]
fn app_name_matches_every_hello_of_that_application() {
    let server = start();
    let mut other = connect(&server);
    other.hello("other").unwrap();
    let data = doc! { "failCommands": ["hello", "isMaster"], "errorCode": 91, "appName": "mine" };
    configure(&mut other, doc! { "skip": 2 }, data);
    let mut client = connect(&server);
    assert!(is_ok(&client.run("admin", hello("mine")).unwrap()));
    assert!(is_ok(&client.run("admin", doc! { "ismaster": 1 }).unwrap()));
    assert!(is_ok(&other.run("admin", doc! { "hello": 1 }).unwrap()));
    assert_eq!(code(&client.run("admin", doc! { "hello": 1 }).unwrap()), 91);
    assert_eq!(code(&client.run("admin", doc! { "ismaster": 1 }).unwrap()), 91);
    let mut late = connect(&server);
    assert_eq!(code(&late.run("admin", hello("mine")).unwrap()), 91);
    assert!(is_ok(&connect(&server).run("admin", hello("other")).unwrap()));
    assert!(is_ok(&client.run("admin", ping()).unwrap()));
}

#[test]
fn fail_point_matches_a_hello_by_op_query() {
    let server = start();
    server.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["ismaster"]).error(91));
    let mut client = connect(&server);
    client.send_query("admin.$cmd", doc! { "isMaster": 1 }).unwrap();
    assert_eq!(code(&client.read().unwrap().body), 91);
}

#[test]
fn malformed_fail_points_are_refused() {
    let (_server, mut client) = connected();
    let mut refused = |command: Document| code(&client.run("admin", command).unwrap());
    assert_eq!(refused(doc! { "configureFailPoint": "nothing", "mode": "off" }), 266);
    assert_eq!(refused(doc! { "configureFailPoint": 1, "mode": "off" }), 14);
    assert_eq!(refused(doc! { "configureFailPoint": "failCommand" }), 20);
    assert_eq!(refused(doc! { "configureFailPoint": "failCommand", "mode": "xx" }), 2);
    assert_eq!(refused(doc! { "configureFailPoint": "failCommand", "mode": 1 }), 14);
    assert_eq!(refused(doc! { "configureFailPoint": "failCommand", "mode": { "times": -1 } }), 2);
    assert_eq!(refused(doc! { "configureFailPoint": "failCommand", "mode": { "activationProbability": 2.0 } }), 2);
    let blocked = doc! { "failCommands": ["ping"], "blockConnection": true };
    assert_eq!(refused(doc! { "configureFailPoint": "failCommand", "mode": "alwaysOn", "data": blocked }), 72);
    let elsewhere = doc! { "configureFailPoint": "failCommand", "mode": "off" };
    assert_eq!(code(&client.run("db", elsewhere).unwrap()), 13);
}
