//! Messages of pools (LOG-21..28).

use super::*;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;
use poolhouse_core::pool::{
    CheckOut, Claim, Clear, ConnId, EstablishError, Health, Lease, OnHeap, Pool, PoolId, PoolOptions,
};
use poolhouse_core::{Cause, Instant, ObjectId};

const CLEAR: Clear = Clear::All { interrupt_in_use_connections: false };

/// A pool with the logger as its observer.
struct Rig {
    pool: Pool<OnHeap>,
    now: Instant,
    logs: Within<'static, Logs>,
}

impl Rig {
    fn new(options: PoolOptions, logging: LogOptions) -> Self {
        let (now, mut logs) = (Instant::ORIGIN, logs(logging));
        let pool = Pool::new(now, PoolId::new(7), options.validate().expect("valid"), &mut logs);
        Self { pool, now, logs }
    }

    fn pass(&mut self, micros: u64) {
        self.now = self.now.saturating_add(Duration::from_micros(micros));
    }

    fn ready(&mut self) {
        self.pool.ready(self.now, &mut self.logs);
    }

    fn begin(&mut self) -> (poolhouse_core::pool::WaiterId, ConnId) {
        let Ok(CheckOut::Queued(waiter)) = self.pool.check_out(self.now, None, &mut self.logs) else {
            panic!("nothing is there yet")
        };
        (waiter, self.pool.poll_establish().expect("wanted"))
    }

    /// Checks out a new connection that takes 1.5 ms to be established.
    fn lease(&mut self) -> Lease {
        let (waiter, conn) = self.begin();
        self.pass(1500);
        self.pool.handle_established(self.now, conn, &mut self.logs).expect("pending");
        let Claim::Granted(lease) = self.pool.claim(self.now, waiter) else { panic!("granted") };
        lease
    }

    fn check_in(&mut self, lease: Lease, health: Health) {
        self.pool.check_in(self.now, lease, health, &mut self.logs).expect("ours");
        while self.pool.poll_action(self.now).is_some() {}
    }
}

/// Checks a message of a pool: its own fields in addition to the host's.
fn check(captured: &Captured, message: &str, fields: &[(&str, capture::Value)]) {
    let mut all: Vec<(&str, capture::Value)> =
        Vec::from([("message", message.into()), ("serverHost", "db.example".into()), ("serverPort", 27018_u64.into())]);
    all.extend_from_slice(fields);
    captured.check(CONNECTION, &all);
}

#[test]
#[doc(alias("LOG-21", "LOG-23", "LOG-24", "LOG-25", "LOG-27", "LOG-32"))]
fn all_events_of_a_connection_are_logged_in_order() {
    let captured = capture(|| {
        let mut rig = Rig::new(PoolOptions::DEFAULT, LogOptions::DEFAULT);
        rig.ready();
        let lease = rig.lease();
        rig.check_in(lease, Health::Healthy);
        rig.pool.close(rig.now, &mut rig.logs);
    });
    let id = ("driverConnectionId", 1_u64.into());
    let duration = ("durationMS", 1.5.into());
    check(&captured[0], "Connection pool created", &[]);
    check(&captured[1], "Connection pool ready", &[]);
    check(&captured[2], "Connection checkout started", &[]);
    check(&captured[3], "Connection created", core::slice::from_ref(&id));
    check(&captured[4], "Connection ready", &[id.clone(), duration.clone()]);
    check(&captured[5], "Connection checked out", &[id.clone(), duration]);
    check(&captured[6], "Connection checked in", core::slice::from_ref(&id));
    check(&captured[7], "Connection closed", &[id, ("reason", "Connection pool was closed".into())]);
    check(&captured[8], "Connection pool closed", &[]);
    assert_eq!(captured.len(), 9);
}

#[test]
#[doc(alias("LOG-22", "LOG-33"))]
fn each_option_that_differs_is_in_the_message_of_a_new_pool_and_no_other() {
    let options = PoolOptions {
        max_pool_size: 5,
        min_pool_size: 1,
        max_idle_time: Some(Duration::from_secs(10)),
        max_connecting: 3,
        wait_queue_timeout: Some(Duration::from_millis(700)),
        ..PoolOptions::DEFAULT
    };
    let all = [
        ("maxPoolSize", 5_u64.into()),
        ("minPoolSize", 1_u64.into()),
        ("maxIdleTimeMS", 10_000_u64.into()),
        ("maxConnecting", 3_u64.into()),
        ("waitQueueTimeoutMS", 700_u64.into()),
    ];
    let captured = capture(|| drop(Rig::new(options, LogOptions::DEFAULT)));
    check(&captured[0], "Connection pool created", &all);
    let options = PoolOptions { max_connecting: 9, ..PoolOptions::DEFAULT };
    let captured = capture(|| drop(Rig::new(options, LogOptions::DEFAULT)));
    check(&captured[0], "Connection pool created", &[("maxConnecting", 9_u64.into())]);
}

#[test]
#[doc(alias("LOG-23", "LOG-28"))]
fn cleared_pool_is_logged_once_while_it_is_paused() {
    let captured = capture(|| {
        let mut rig = Rig::new(PoolOptions::DEFAULT, MESSAGES);
        rig.ready();
        rig.pool.clear(rig.now, CLEAR, Some(Cause::Network), &mut rig.logs).expect("of its mode");
        rig.pool.clear(rig.now, CLEAR, Some(Cause::Network), &mut rig.logs).expect("of its mode");
    });
    check(&captured[2], "Connection pool cleared", &[]);
    assert_eq!(captured.len(), 3, "no message for a pool that is paused already");
}

#[test]
#[doc(alias = "LOG-23")]
fn cleared_service_is_named_in_hex() {
    let captured = capture(|| {
        let options = PoolOptions { load_balanced: true, ..PoolOptions::DEFAULT };
        let mut rig = Rig::new(options, LogOptions::DEFAULT);
        rig.ready();
        let (waiter, conn) = rig.begin();
        let service = ObjectId([0xab; 12]);
        rig.pool.handle_service(conn, service).expect("pending");
        rig.pool.handle_established(rig.now, conn, &mut rig.logs).expect("pending");
        let Claim::Granted(lease) = rig.pool.claim(rig.now, waiter) else { panic!("granted") };
        rig.pool.clear(rig.now, Clear::Service(service), None, &mut rig.logs).expect("of its mode");
        rig.check_in(lease, Health::Healthy);
    });
    let cleared = captured.iter().find(|message| message.message() == "Connection pool cleared").expect("cleared");
    check(cleared, "Connection pool cleared", &[("serviceId", "abababababababababababab".into())]);
}

#[test]
#[doc(alias = "LOG-25")]
fn closed_connection_has_one_of_four_fixed_reasons() {
    let stale = capture(|| {
        let mut rig = Rig::new(PoolOptions::DEFAULT, LogOptions::DEFAULT);
        rig.ready();
        let lease = rig.lease();
        rig.pool.clear(rig.now, CLEAR, None, &mut rig.logs).expect("of its mode");
        rig.check_in(lease, Health::Healthy);
    });
    let idle = capture(|| {
        let options = PoolOptions { max_idle_time: Some(Duration::from_millis(5)), ..PoolOptions::DEFAULT };
        let mut rig = Rig::new(options, LogOptions::DEFAULT);
        rig.ready();
        let lease = rig.lease();
        rig.check_in(lease, Health::Healthy);
        rig.pass(6000);
        rig.pool.handle_timeout(rig.now, &mut rig.logs);
    });
    let error = capture(|| {
        let mut rig = Rig::new(PoolOptions::DEFAULT, LogOptions::DEFAULT);
        rig.ready();
        let lease = rig.lease();
        rig.check_in(lease, Health::Broken(Cause::NetworkTimeout));
    });
    let closed = |captured: &[Captured], fields: &[(&str, capture::Value)]| {
        let last = captured.last().expect("some");
        let id = ("driverConnectionId", 1_u64.into());
        check(last, "Connection closed", &[&[id], fields].concat());
    };
    closed(&stale, &[("reason", "Connection became stale because the pool was cleared".into())]);
    closed(
        &idle,
        &[("reason", "Connection has been available but unused for longer than the configured max idle time".into())],
    );
    closed(
        &error,
        &[("reason", "An error occurred while using the connection".into()), ("error", "network timeout".into())],
    );
}

#[test]
#[doc(alias = "LOG-26")]
fn failed_check_out_has_one_of_three_fixed_reasons() {
    let timeout = capture(|| {
        let options = PoolOptions { max_pool_size: 1, ..PoolOptions::DEFAULT };
        let mut rig = Rig::new(options, LogOptions::DEFAULT);
        rig.ready();
        let lease = rig.lease();
        let deadline = Some(rig.now.saturating_add(Duration::from_millis(2)));
        let waits = rig.pool.check_out(rig.now, deadline, &mut rig.logs);
        assert!(matches!(waits, Ok(CheckOut::Queued(_))));
        rig.pass(2000);
        rig.pool.handle_timeout(rig.now, &mut rig.logs);
        rig.check_in(lease, Health::Healthy);
    });
    let closed = capture(|| {
        let mut rig = Rig::new(PoolOptions::DEFAULT, LogOptions::DEFAULT);
        rig.pool.close(rig.now, &mut rig.logs);
        assert!(rig.pool.check_out(rig.now, None, &mut rig.logs).is_err());
    });
    let error = capture(|| {
        let mut rig = Rig::new(PoolOptions::DEFAULT, LogOptions::DEFAULT);
        rig.ready();
        let (_, conn) = rig.begin();
        rig.pass(250);
        let refused = EstablishError { cause: Cause::Network, overloaded: false, clear: Some(CLEAR) };
        rig.pool.handle_establish_failed(rig.now, conn, refused, &mut rig.logs).expect("pending");
    });
    let failed = |captured: &[Captured], fields: &[(&str, capture::Value)]| {
        let failed = captured.iter().find(|message| message.message() == "Connection checkout failed");
        check(failed.expect("failed"), "Connection checkout failed", fields);
    };
    failed(
        &timeout,
        &[
            ("reason", "Wait queue timeout elapsed without a connection becoming available".into()),
            ("durationMS", 2.0.into()),
        ],
    );
    failed(&closed, &[("reason", "Connection pool was closed".into()), ("durationMS", 0.0.into())]);
    failed(
        &error,
        &[
            ("reason", "An error occurred while trying to establish a new connection".into()),
            ("error", "Could not establish a connection: network error".into()),
            ("durationMS", 0.25.into()),
        ],
    );
}

#[test]
#[doc(alias = "LOG-21")]
fn unix_socket_has_a_host_and_no_port_and_ipv6_no_brackets() {
    let created = |address: &'static str| {
        let mut captured = capture(|| {
            let mut logs = Within::new(Logs::default(), EventContext::of_server(address));
            drop(Pool::<OnHeap>::new(
                Instant::ORIGIN,
                PoolId::new(1),
                poolhouse_core::pool::PoolConfig::DEFAULT,
                &mut logs,
            ));
        });
        captured.remove(0)
    };
    let message = ("message", "Connection pool created".into());
    let path = ("serverHost", "/tmp/mongodb-27017.sock".into());
    created("/tmp/mongodb-27017.sock").check(CONNECTION, &[message.clone(), path]);
    let host = [("serverHost", "::1".into()), ("serverPort", 27017_u64.into())];
    created("[::1]:27017").check(CONNECTION, &[core::slice::from_ref(&message), &host[..]].concat());
    let unknown = capture(|| {
        let mut logs = Logs::default();
        drop(Pool::<OnHeap>::new(
            Instant::ORIGIN,
            PoolId::new(1),
            poolhouse_core::pool::PoolConfig::DEFAULT,
            &mut logs,
        ));
    });
    unknown[0].check(CONNECTION, &[message]);
}

#[test]
#[doc(alias = "LOG-40")]
fn sentences_follow_the_templates() {
    let captured = capture(|| {
        let options = PoolOptions { max_pool_size: 1, max_connecting: 3, ..PoolOptions::DEFAULT };
        let mut rig = Rig::new(options, TEXT);
        rig.ready();
        let lease = rig.lease();
        let deadline = Some(rig.now.saturating_add(Duration::from_millis(2)));
        let waits = rig.pool.check_out(rig.now, deadline, &mut rig.logs);
        assert!(matches!(waits, Ok(CheckOut::Queued(_))));
        rig.pass(2000);
        rig.pool.handle_timeout(rig.now, &mut rig.logs);
        rig.check_in(lease, Health::Broken(Cause::Network));
        rig.pool.clear(rig.now, CLEAR, None, &mut rig.logs).expect("of its mode");
        rig.pool.check_out(rig.now, None, &mut rig.logs).expect_err("paused");
        rig.pool.close(rig.now, &mut rig.logs);
    });
    let texts: Vec<String> = captured.iter().map(|event| String::from(event.message())).collect();
    assert!(captured.iter().all(|event| event.fields.len() == 1 && event.target == CONNECTION), "one field only");
    let expected = [
        "Connection pool created for db.example:27018 using options maxPoolSize=1, maxConnecting=3",
        "Connection pool ready for db.example:27018",
        "Checkout started for connection to db.example:27018",
        "Connection created: address=db.example:27018, driver-generated ID=1",
        "Connection ready: address=db.example:27018, driver-generated ID=1, established in=1.5 ms",
        "Connection checked out: address=db.example:27018, driver-generated ID=1, duration=1.5 ms",
        "Checkout started for connection to db.example:27018",
        "Checkout failed for connection to db.example:27018. Reason: Wait queue timeout elapsed without a connection \
         becoming available. Duration: 2 ms",
        "Connection checked in: address=db.example:27018, driver-generated ID=1",
        "Connection closed: address=db.example:27018, driver-generated ID=1. Reason: An error occurred while using the \
         connection. Error: network error",
        "Connection pool for db.example:27018 cleared",
        "Checkout started for connection to db.example:27018",
        "Checkout failed for connection to db.example:27018. Reason: An error occurred while trying to establish a new \
         connection. Error: Connection pool was cleared. Duration: 0 ms",
        "Connection pool closed for db.example:27018",
    ];
    assert_eq!(texts, expected);
}
