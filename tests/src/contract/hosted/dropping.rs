//! Cancel-safety of the hosted client: each of its futures is dropped at each of its polls.

use super::{Hosted, Probe, find, find_by, first_id};
use crate::contract::rig::{DropIt, DropPoint, Rig, at_every_point, within};
use crate::contract::{Shape, run_case};
use crate::dns::{self, DnsServer, Records};
use crate::fake::{Fault, FaultRule};
use crate::patience::{PATIENCE, eventually, refused};
use crate::suite::Suite;
use alloc::sync::Arc;
use core::future::Future;
use core::ops::AsyncFn;
use core::time::Duration;
use futures_lite::future::block_on;
use poolhouse_client::{Client, ClientOptions, CommandOptions, Connection, DnsResolver, Error, Platform};
use poolhouse_driver::{Notice, OperationError};
use poolhouse_uri::dns::ResolverConfig;

pub(super) fn add<P: Platform + Default>(suite: Suite) -> Suite {
    let suite =
        [("closed", Duration::ZERO), ("waited_for", PATIENCE)].into_iter().fold(suite, |suite, (late, time)| {
            suite
                .case(format!("hosted::dropping::run_command_with_late_replies_{late}"), move || {
                    commands::<P>(time, run_command);
                })
                .case(format!("hosted::dropping::run_raw_command_with_late_replies_{late}"), move || {
                    commands::<P>(time, run_raw_command);
                })
                .case(format!("hosted::dropping::run_command_with_a_timeout_with_late_replies_{late}"), move || {
                    commands::<P>(time, run_command_within);
                })
                .case(format!("hosted::dropping::with_connection_with_late_replies_{late}"), move || {
                    commands::<P>(time, with_connection);
                })
        });
    suite
        .case("hosted::dropping::check_out_timeout", || run_case(check_out_timeout::<P>))
        .case("hosted::dropping::warm_up", || run_case(warm_up::<P>))
        .case("hosted::dropping::close", || run_case(close::<P>))
        .case("hosted::dropping::connect", || run_case(connect::<P>))
        .case("hosted::dropping::resolve", || run_case(resolve::<P>))
        .case("hosted::dropping::next_event", || run_case(next_event::<P>))
}

fn single(shape: &mut Shape) {
    shape.max_pool_size = 1;
}

async fn run_command<P: Platform>(client: &Client<P>) -> Result<String, Error> {
    find(client, "one").await
}

async fn run_raw_command<P: Platform>(client: &Client<P>) -> Result<String, Error> {
    let command = bson::RawDocumentBuf::try_from(&bson::doc! { "find": "one" }).expect("a document");
    let reply = client.run_raw_command("db", &command).await?;
    Ok(first_id(&bson::Document::try_from(&*reply).expect("a document")).to_owned())
}

async fn run_command_within<P: Platform>(client: &Client<P>) -> Result<String, Error> {
    let options = CommandOptions::new().timeout(PATIENCE);
    let reply = client.run_command_with("db", bson::doc! { "find": "one" }, options).await?;
    Ok(first_id(&reply).to_owned())
}

/// Two commands, so the second one is also dropped.
async fn with_connection<P: Platform>(client: &Client<P>) -> Result<String, Error> {
    let work = async |connection: &mut Connection<'_, P>| {
        assert_eq!(find_by(connection, "other").await?, "other");
        find_by(connection, "one").await
    };
    client.with_connection(work).await
}

/// A complete operation of a client with no or one connection. The server sends its replies in
/// pieces.
fn commands<P: Platform + Default>(
    drain_timeout: Duration,
    operation: impl AsyncFn(&Client<Probe<P>>) -> Result<String, Error>,
) {
    run_case(async |subject: &Hosted<P>| {
        let rig = Rig::new(subject, |shape| {
            single(shape);
            shape.drain_timeout = drain_timeout;
        });
        let trickle = FaultRule::always(Fault::Trickle { gap: Duration::ZERO }).on_command("find");
        at_every_point(1, async |point| {
            rig.server.inject(trickle.clone());
            let done = rig.reach_frozen(point, operation(rig.client.client())).await;
            rig.nothing_is_held();
            rig.server.clear_faults();
            rig.all_is_well().await;
            done.map(|found| assert_eq!(found.expect("it succeeds"), "one")).is_some()
        })
        .await;
        rig.end().await;
    });
}

/// The connection that the check-out waits for is returned meanwhile.
async fn check_out_timeout<P: Platform + Default>(subject: &Hosted<P>) {
    let rig = Rig::new(subject, single);
    rig.all_is_well().await;
    let client = rig.client.client();
    at_every_point(1, async |point| {
        let mut held = Some(client.check_out_timeout(None).await.expect("a connection"));
        let done = point.reach_beside(client.check_out_timeout(Some(PATIENCE)), async || drop(held.take())).await;
        let over = done.is_some();
        drop((done, held));
        rig.nothing_is_held();
        rig.all_is_well().await;
        over
    })
    .await;
    rig.end().await;
}

async fn warm_up<P: Platform + Default>(subject: &Hosted<P>) {
    let fill = |shape: &mut Shape| shape.min_pool_size = 3;
    let mut rig = Rig::new(subject, fill);
    at_every_point(1, async |point| {
        rig.end().await;
        // Otherwise the minimum could be filled before the wait begins.
        rig.server.freeze();
        rig.renew(subject, fill);
        let over = rig.reach_frozen(point, rig.client.client().warm_up(PATIENCE)).await.is_some();
        rig.client.client().warm_up(PATIENCE).await.expect("a waiter slot is free");
        eventually("the pool is filled", || rig.counts().available == 3).await;
        rig.all_is_well().await;
        over
    })
    .await;
    rig.end().await;
}

/// The client is closed although the future is dropped: operations fail, subscriptions and tasks
/// end.
async fn close<P: Platform + Default>(subject: &Hosted<P>) {
    let mut rig = Rig::new(subject, |_| ());
    at_every_point(0, async |point| {
        rig.all_is_well().await;
        let client = rig.client.client();
        let mut events = client.subscribe();
        let over = point.reach(client.close()).await.is_some();
        if point.polls > 0 {
            assert!(client.core().is_closed());
            let error = refused(find(client, "one").await);
            assert!(matches!(error, Error::Operation(OperationError::Closed, _)), "{error:?}");
            within(PATIENCE, "the subscription ends", async { while events.next().await.is_some() {} }).await;
            // Closing completes although `close` is not called again.
            eventually("all tasks have ended", || rig.client.platform().tasks_count() == 0).await;
        }
        rig.end().await;
        client.close().await;
        rig.renew(subject, |_| ());
        over
    })
    .await;
    rig.end().await;
}

/// A connect that is dropped before it completes leaves no running task.
async fn connect<P: Platform + Default>(subject: &Hosted<P>) {
    let rig = Rig::new(subject, |_| ());
    rig.all_is_well().await;
    let uri = rig.server.uri();
    at_every_point(0, async |point| {
        let done = point.reach(Client::<Probe<P>>::new(&uri)).await;
        let over = done.is_some();
        if let Some(client) = done {
            let client = client.expect("a client");
            assert_eq!(find(&client, "one").await.expect("it succeeds"), "one");
            client.close().await;
        }
        // The remaining tasks are those of the rig.
        rig.at_rest().await;
        over
    })
    .await;
    rig.all_is_well().await;
    rig.end().await;
}

/// Resolves the hosts and the options of a connection string.
async fn resolve<P: Platform + Default>(_subject: &Hosted<P>) {
    let mut records = Records { ttl: 60, ..Records::default() };
    records.set_srv("_mongodb._tcp.cluster.example.test", &["r0.example.test:27017"]);
    let names = DnsServer::start(records).expect("the name server starts");
    // Each query is sent twice, over UDP and then over TCP.
    names.set_fault(dns::Fault::Truncate);
    let config = ResolverConfig { timeout: PATIENCE, attempts: 1, ..ResolverConfig::new(vec![names.address()]) };
    let resolver = Arc::new(DnsResolver::with_config(Probe::<P>::default(), config));
    let resolving = || resolving(resolver.clone());
    at_every_point(0, async |point| {
        let done = point.reach(resolving()).await;
        let is_there = |options: Result<ClientOptions, Error>| {
            options.expect("hosts are found").hosts == ["r0.example.test:27017"]
        };
        assert!(is_there(resolving().await), "the next future succeeds");
        done.map(|options| assert!(is_there(options))).is_some()
    })
    .await;
}

fn resolving<P: Platform>(resolver: Arc<DnsResolver<P>>) -> impl Future<Output = Result<ClientOptions, Error>> {
    ClientOptions::resolve("mongodb+srv://cluster.example.test/?tls=false", resolver)
}

/// A receiver that is dropped, before it waits or after it was woken for an event, loses no event.
async fn next_event<P: Platform + Default>(subject: &Hosted<P>) {
    let rig = Rig::new(subject, single);
    rig.all_is_well().await;
    let mut events = rig.client.client().subscribe();
    let text = |notice| match notice {
        Notice::Event { event, .. } => event.to_string(),
        Notice::Lagged { count } => panic!("{count} events were lost"),
    };
    at_every_point(1, async |point| {
        let mut happens = Some(|| drop(block_on(rig.check_out())));
        let done = point.reach_beside(events.next(), async || happens.take().into_iter().for_each(|it| it())).await;
        happens.take().into_iter().for_each(|it| it());
        let over = done.is_some();
        let mut seen: Vec<_> = done.map(|notice| text(notice.expect("the client is open"))).into_iter().collect();
        seen.extend(core::iter::from_fn(|| events.try_next()).map(text));
        assert_eq!(seen.len(), 3, "started, checked out, checked in: {seen:?}");
        over
    })
    .await;
    let again = DropPoint { polls: 1, drop_it: DropIt::AtOnce };
    assert!(again.reach(events.next()).await.is_none());
    rig.end().await;
    rig.client.client().close().await;
    within(PATIENCE, "it ends", async { while events.next().await.is_some() {} }).await;
}
