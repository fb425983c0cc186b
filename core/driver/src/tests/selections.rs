//! Events of selections.

use super::*;
use crate::{
    Event, EventKinds, Notice, OwnedSelectionEvent, RetryPolicy, SelectionRequest, SelectionStage, Subscription,
};
use alloc::string::ToString;
use poolhouse_core::selection::{ReadMode, ReadPreference, SelectionCriteria};

const BOTH: [EventKinds; 2] = [EventKinds::SELECTIONS, EventKinds::SELECTION_WAITS];

/// A client core with one server, which is not known yet, and a subscription.
fn observed(kinds: EventKinds) -> (Bench, Arc<ClientCore<Bench>>, Arc<Server<Bench>>, Subscription) {
    let (bench, core, server) = open();
    let events = core.events().subscribe(kinds, 64, |_| true);
    (bench, core, server, events)
}

/// Makes the server known, by a connection to it.
fn make_known(core: &ClientCore<Bench>, server: &Arc<Server<Bench>>) {
    let mut waiting = Box::pin(core.check_out_of(Arc::clone(server), None, None));
    let mut establishing = Box::pin(core.keep_establishing(server));
    assert!(poll(&mut waiting).is_pending() && poll(&mut establishing).is_pending());
    assert!(matches!(poll(&mut waiting), Poll::Ready(Ok(_))));
}

fn taken(events: &mut Subscription) -> Vec<OwnedSelectionEvent> {
    core::iter::from_fn(|| events.try_next())
        .map(|notice| {
            let Notice::Event { event: Event::Selection(event), .. } = notice else { panic!("{notice:?}") };
            *event
        })
        .collect()
}

fn texts(events: &mut Subscription) -> Vec<String> {
    taken(events).iter().map(|event| event.get().to_string()).collect()
}

#[test]
fn selection_of_a_known_server_starts_and_succeeds() {
    let (_, core, server, mut events) = observed(BOTH[0] | BOTH[1]);
    make_known(&core, &server);
    assert!(done(core.select_server(&SelectionRequest::WRITE, None)).is_ok());
    let seen = taken(&mut events);
    assert_eq!(seen.len(), 2);
    for event in &seen {
        let event = event.get();
        assert_eq!((event.selector, event.operation, event.operation_id), ("write", None, None));
        assert_eq!(event.topology.to_string(), core.topology().to_string());
    }
    assert!(matches!(seen[0].get().stage, SelectionStage::Started));
    assert!(matches!(seen[1].get().stage, SelectionStage::Succeeded { address: "a:27017" }));

    drop(done(core.check_out(&SelectionRequest::WRITE, None)).expect("a connection"));
    let nearest = SelectionCriteria::read(ReadPreference::of(ReadMode::Nearest));
    assert!(done(core.select_server(&SelectionRequest { criteria: nearest, deprioritized: &[] }, None)).is_ok());
    let expected = [
        "ServerSelectionStarted (write)",
        "ServerSelectionSucceeded (write): a:27017",
        "ServerSelectionStarted (read from nearest)",
        "ServerSelectionSucceeded (read from nearest): a:27017",
    ];
    assert_eq!(texts(&mut events), expected);
}

#[test]
fn waiting_selection_is_reported_once_with_its_remaining_time() {
    let (bench, core, server, mut events) = observed(BOTH[0] | BOTH[1]);
    let mut selecting = Box::pin(core.select_server(&SelectionRequest::WRITE, None));
    for _ in 0..3 {
        assert!(poll(&mut selecting).is_pending());
    }
    assert_eq!(texts(&mut events), ["ServerSelectionStarted (write)", "ServerSelectionWaiting (write), at most 30s"]);
    make_known(&core, &server);
    assert!(matches!(poll(&mut selecting), Poll::Ready(Ok(_))));
    let expected = ["ServerSelectionWaited (write) for 0.0ns", "ServerSelectionSucceeded (write): a:27017"];
    assert_eq!(texts(&mut events), expected);

    let (_, core, _) = open_as(|config| config.server_selection_timeout = Duration::MAX);
    let mut events = core.events().subscribe(EventKinds::SELECTION_WAITS, 64, |_| true);
    let mut selecting = Box::pin(core.select_server(&SelectionRequest::WRITE, None));
    assert!(poll(&mut selecting).is_pending());
    assert_eq!(texts(&mut events), ["ServerSelectionWaiting (write)"], "without a limit");
    let limit = bench.now().saturating_add(Duration::from_secs(2));
    let mut limited = Box::pin(core.select_server(&SelectionRequest::WRITE, Some(limit)));
    assert!(poll(&mut limited).is_pending());
    assert_eq!(texts(&mut events), ["ServerSelectionWaiting (write), at most 2s"]);
}

#[test]
fn failed_selection_has_its_error() {
    let (bench, core, _server, mut events) = observed(EventKinds::SELECTIONS);
    let mut selecting = Box::pin(core.select_server(&SelectionRequest::WRITE, None));
    assert!(poll(&mut selecting).is_pending());
    bench.advance_to(bench.now().saturating_add(Duration::from_secs(30)));
    let Poll::Ready(Err(error)) = poll(&mut selecting) else { panic!("it has timed out") };
    drop(selecting);
    let seen = taken(&mut events);
    assert_eq!(seen.len(), 2, "{seen:?}");
    let SelectionStage::Failed { error: Some(reported) } = seen[1].get().stage else { panic!("{seen:?}") };
    assert_eq!(*reported, error);
    assert!(matches!(error, OperationError::ServerSelection(_)));

    let mut selecting = Box::pin(core.select_server(&SelectionRequest::WRITE, None));
    assert!(poll(&mut selecting).is_pending());
    core.close();
    assert!(matches!(poll(&mut selecting), Poll::Ready(Err(OperationError::Closed))));
    let expected = ["ServerSelectionStarted (write)", "ServerSelectionFailed (write): the client is closed"];
    assert_eq!(texts(&mut events), expected);
    assert!(done(core.check_out(&SelectionRequest::WRITE, None)).is_err());
    assert_eq!(texts(&mut events), expected, "at once");
}

#[test]
fn dropped_selection_has_one_end() {
    let (_, core, server, mut events) = observed(EventKinds::SELECTIONS);
    drop(core.select_server(&SelectionRequest::WRITE, None));
    assert!(taken(&mut events).is_empty(), "it has not begun");
    let mut selecting = Box::pin(core.select_server(&SelectionRequest::WRITE, None));
    assert!(poll(&mut selecting).is_pending());
    drop(selecting);
    assert_eq!(texts(&mut events), ["ServerSelectionStarted (write)", "ServerSelectionFailed (write): cancelled"]);
    make_known(&core, &server);
    let mut selecting = Box::pin(core.select_server(&SelectionRequest::WRITE, None));
    assert!(poll(&mut selecting).is_ready());
    drop(selecting);
    let expected = ["ServerSelectionStarted (write)", "ServerSelectionSucceeded (write): a:27017"];
    assert_eq!(texts(&mut events), expected, "its end was its success");
}

#[test]
fn each_kind_has_its_own_events() {
    let counts = |kinds| {
        let (_, core, server, mut events) = observed(kinds);
        let mut selecting = Box::pin(core.select_server(&SelectionRequest::WRITE, None));
        assert!(poll(&mut selecting).is_pending());
        make_known(&core, &server);
        assert!(poll(&mut selecting).is_ready());
        core::iter::from_fn(|| events.try_next())
            .filter(|notice| matches!(notice, Notice::Event { event: Event::Selection(_), .. }))
            .count()
    };
    assert_eq!(BOTH.map(counts), [2, 2]);
    assert_eq!(counts(EventKinds::ALL | EventKinds::COMMANDS), 0);
    assert!(!BOTH.iter().any(|kind| kind.intersects(EventKinds::ALL)));
}

#[test]
fn selections_of_an_operation_have_its_name_and_id() {
    let (_, core, server, mut events) = observed(EventKinds::SELECTIONS);
    make_known(&core, &server);
    let attempts = || core.attempts::<OperationError>(SelectionCriteria::write(), None, RetryPolicy::DEFAULT);
    let mut named = attempts().named("ping", 7, EventKinds::SELECTIONS);
    for _ in 0..2 {
        drop(done(named.next()).expect("a connection"));
    }
    let seen = taken(&mut events);
    assert_eq!(seen.len(), 4);
    assert!(seen.iter().all(|event| (event.get().operation, event.get().operation_id) == (Some("ping"), Some(7))));
    drop(done(attempts().next()).expect("a connection"));
    assert_eq!(texts(&mut events)[0], "ServerSelectionStarted (write)");
    // The subscription began during the operation.
    let mut late = attempts().named("ping", 7, EventKinds::NONE);
    drop(done(late.next()).expect("a connection"));
    assert!(taken(&mut events).is_empty());
}

#[test]
fn each_wait_has_an_end_and_only_the_first_of_an_operation_is_new() {
    let (_, core, _server, mut events) = observed(EventKinds::SELECTION_WAITS);
    let attempts = || core.attempts::<OperationError>(SelectionCriteria::write(), None, RetryPolicy::DEFAULT);
    for named in [true, false] {
        let operation = attempts();
        let mut operation = if named { operation.named("ping", 7, EventKinds::SELECTION_WAITS) } else { operation };
        for is_again in [false, true] {
            let mut attempt = Box::pin(operation.next());
            assert!(poll(&mut attempt).is_pending() && poll(&mut attempt).is_pending());
            drop(attempt);
            let seen = taken(&mut events);
            let [begin, end] = &seen[..] else { panic!("{named}: {seen:?}") };
            assert!(
                matches!(begin.get().stage, SelectionStage::Waiting { again, .. } if again == is_again)
                    && matches!(end.get().stage, SelectionStage::Waited { .. }),
                "{named}: {seen:?}"
            );
            assert!(seen.iter().all(|event| event.get().operation == named.then_some("ping")), "{seen:?}");
        }
    }
}
