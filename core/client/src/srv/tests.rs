use super::*;
use crate::log::tests::capture::{Captured, capture};
use crate::log::{LogOptions, LogStyle, TOPOLOGY};
use crate::resolver::tests::timers::Hasty;
use crate::{Client, ClientOptions};
use alloc::boxed::Box;
use alloc::vec;
use async_trait::async_trait;
use core::task::{Context, Waker};
use poolhouse_core::Instant;
use poolhouse_driver::Subscribers;
use poolhouse_uri::ConnectionString;
use poolhouse_uri::dns::{LookupError, SrvAnswer, SrvRecord};
use std::sync::Mutex;
use tracing::Level;
use tracing::level_filters::LevelFilter;

/// Returns these answers, the last one first.
#[derive(Debug)]
struct Told(Mutex<Vec<Result<SrvAnswer, LookupError>>>);

#[async_trait]
impl Resolver for Told {
    async fn lookup_srv(&self, _: &str) -> Result<SrvAnswer, LookupError> {
        self.0.lock().expect("not poisoned").pop().expect("no more lookups than answers")
    }

    async fn lookup_txt(&self, _: &str) -> Result<Vec<String>, LookupError> {
        Err(LookupError::NoRecords)
    }
}

fn answer(hosts: &[&str]) -> Result<SrvAnswer, LookupError> {
    let records = hosts.iter().map(|host| SrvRecord::new(*host, 1)).collect();
    Ok(SrvAnswer { records, ttl: Duration::ZERO })
}

/// Returns the events that one lookup with this answer logs.
fn logged(log: LogOptions, answer: Result<SrvAnswer, LookupError>) -> Vec<Captured> {
    let platform = Hasty::default();
    let mut options = ClientOptions::new("a.b.test:1");
    options.log = log;
    let client = Client::with_platform(platform, options, Subscribers::default()).expect("the options are right");
    let uri = ConnectionString::parse("mongodb+srv://cluster.b.test/").expect("a string");
    let question = SrvQuestion::of(&uri).expect("of that kind");
    let now = client.inner.core.runtime().platform().now();
    let mut poll = SrvPoll::new(now, question, Duration::ZERO, Duration::from_secs(10));
    let resolver = Told(Mutex::new(vec![answer]));
    capture(|| {
        while !resolver.0.lock().expect("not poisoned").is_empty() {
            let step = pin!(step(&client.inner.core, &mut poll, &resolver));
            assert_eq!(step.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(()));
        }
    })
    .into_iter()
    .filter(|event| event.level == Level::WARN)
    .collect()
}

const NAME: &str = "_mongodb._tcp.cluster.b.test";

#[test]
fn lookup_that_failed_is_logged_with_its_reason() {
    let captured = logged(LogOptions::DEFAULT, Err(LookupError::ServerFailed { code: 2 }));
    let [event] = captured.as_slice() else { panic!("one message: {captured:?}") };
    assert_eq!((event.target.as_str(), event.message()), (TOPOLOGY, "SRV record lookup failed"));
    assert_eq!(event.text("srvName"), NAME);
    assert_eq!(event.text("failure"), "SRV lookup of _mongodb._tcp.cluster.b.test: the name server failed with code 2");
    assert!(event.fields.contains_key("topologyId") && event.fields.len() == 4, "{event:?}");

    let captured = logged(LogOptions::DEFAULT, Ok(SrvAnswer::default()));
    let failures: Vec<_> = captured.iter().map(|event| event.text("failure")).collect();
    assert_eq!(failures, ["SRV lookup of _mongodb._tcp.cluster.b.test: the reply contains no host"]);
    let long = logged(LogOptions::DEFAULT, Err(LookupError::Other("x".repeat(10_000))));
    assert!(long.iter().all(|event| event.text("failure").len() < 300), "reasons are bounded");
}

#[test]
fn ignored_hosts_are_logged_up_to_a_limit() {
    let captured = logged(LogOptions::DEFAULT, answer(&["evil.test", "a.b.test", "evil\n\u{1b}[2J.test"]));
    let [event] = captured.as_slice() else { panic!("one message: {captured:?}") };
    assert_eq!((event.target.as_str(), event.message()), (TOPOLOGY, "SRV records outside the domain ignored"));
    assert_eq!((event.text("srvName"), event.text("hosts")), (NAME, "evil.test, evil\\n\\u{1b}[2J.test"));
    assert_eq!(event.fields["count"], 2_u64.into());
    assert!(event.fields.contains_key("topologyId") && event.fields.len() == 5, "{event:?}");

    let long = "x".repeat(100_000);
    let captured = logged(LogOptions::DEFAULT, answer(&[long.as_str(); 50]));
    let [failed, ignored] = captured.as_slice() else { panic!("two messages") };
    assert_eq!(failed.text("failure"), "SRV lookup of _mongodb._tcp.cluster.b.test: the reply contains no host");
    assert_eq!(ignored.fields["count"], 50_u64.into());
    assert!(ignored.text("hosts").len() < 3_000);
}

#[test]
fn failed_lookups_are_logged_in_the_style_of_the_options() {
    assert_eq!(logged(LogOptions::DEFAULT, answer(&["a.b.test"])), []);
    let foreign = || answer(&["evil.test"]);
    assert_eq!(logged(LogOptions { topology: LevelFilter::ERROR, ..LogOptions::DEFAULT }, foreign()), []);
    assert_eq!(logged(LogOptions { topology: LevelFilter::WARN, ..LogOptions::DEFAULT }, foreign()).len(), 2);
    let text = logged(LogOptions { style: LogStyle::Text, ..LogOptions::DEFAULT }, foreign());
    let [failed, ignored] = text.as_slice() else { panic!("two messages: {text:?}") };
    assert!(
        failed.message().starts_with("SRV record lookup of _mongodb._tcp.cluster.b.test failed in topology with ID ")
    );
    assert!(
        failed.message().ends_with(". Failure: SRV lookup of _mongodb._tcp.cluster.b.test: the reply contains no host")
    );
    assert!(ignored.message().ends_with(", the first of them: evil.test"));
    assert!(text.iter().all(|event| event.fields.len() == 1 && event.target == TOPOLOGY));
}

/// The tasks of this platform are dropped at once, which closes the client.
#[test]
fn closed_client_performs_no_lookup() {
    let client = Client::with_platform(Hasty::default(), ClientOptions::new("a.b.test:1"), Subscribers::default());
    let client = client.expect("the options are right");
    assert!(client.core().is_closed());
    let uri = ConnectionString::parse("mongodb+srv://cluster.b.test/").expect("a string");
    let question = SrvQuestion::of(&uri).expect("of that kind");
    let poll = SrvPoll::new(Instant::ORIGIN, question, Duration::ZERO, Duration::from_secs(10));
    // A resolver without an answer to any question.
    let resolver = Arc::new(Told(Mutex::new(Vec::new())));
    let run = pin!(run(Arc::clone(&client.inner.core), Arc::default(), resolver, poll));
    assert_eq!(run.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(()));
}
