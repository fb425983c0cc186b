//! Futures of the client on executors other than smol's.

use super::support::{client, options, run, server};
use alloc::sync::Arc;
use alloc::task::Wake;
use bson::doc;
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use poolhouse_smol::poolhouse_client::{Net, Stream};
use poolhouse_smol::{
    Client, ClientOptions, CommandOptions, Connection, Database, Error, OwnedTopologyDescription, ReadMode,
    ReadPreference, Smol, Subscription,
};
use std::thread::{self, Thread};

const fn of_any_thread<T: Send + Sync + 'static>() {}

fn for_any_executor<F: Future + Send>(future: F) -> F {
    future
}

#[test]
fn handles_can_move_to_any_thread() {
    of_any_thread::<Client>();
    of_any_thread::<Database>();
    of_any_thread::<ClientOptions>();
    of_any_thread::<Connection<'static>>();
    of_any_thread::<Subscription>();
    of_any_thread::<OwnedTopologyDescription>();
    of_any_thread::<Error>();
    of_any_thread::<Net<Smol>>();
    of_any_thread::<Stream<Smol>>();
}

/// Every future is `Send`; one that owns a handle is `'static`, and can be spawned.
#[test]
fn futures_can_run_on_any_executor() {
    run(async {
        let server = server();
        let client = client(options(&server));
        let database = client.database("shop");
        let ping = || doc! { "ping": 1 };
        let raw = bson::RawDocumentBuf::try_from(&ping()).expect("a command");
        let nearest = CommandOptions::new().read_preference(ReadPreference::of(ReadMode::Nearest));
        for_any_executor(client.run_command("shop", ping())).await.expect("a ping");
        for_any_executor(client.run_command_with("shop", ping(), nearest)).await.expect("a ping");
        for_any_executor(client.run_raw_command("shop", &raw)).await.expect("a ping");
        for_any_executor(database.run_command(ping())).await.expect("a ping");
        for_any_executor(database.run_command_with(ping(), nearest.client_read_preference(true)))
            .await
            .expect("a ping");
        for_any_executor(database.run_raw_command(&raw)).await.expect("a ping");
        let mut connection = for_any_executor(client.check_out()).await.expect("a connection");
        for_any_executor(connection.run_command("shop", ping())).await.expect("a ping");
        drop(connection);
        drop(for_any_executor(client.check_out_timeout(None)).await.expect("a connection"));
        let mut events = client.subscribe();
        let task = smol::spawn({
            let client = client.clone();
            async move {
                let mut connection = client.check_out().await?;
                connection.run_command("shop", doc! { "ping": 1 }).await
            }
        });
        for_any_executor(task).await.expect("a ping");
        for_any_executor(events.next()).await.expect("an event");
        for_any_executor(client.close()).await;
    });
}

/// A user's executor with its own threads.
#[test]
fn custom_executor_runs_the_clients_futures() {
    let server = server();
    let executor = Arc::new(smol::Executor::new());
    let (stop, stopped) = smol::channel::bounded::<()>(1);
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let (executor, stopped) = (Arc::clone(&executor), stopped.clone());
            thread::spawn(move || smol::future::block_on(executor.run(stopped.recv())))
        })
        .collect();
    run(async {
        let client = client(options(&server).max_pool_size(2));
        let tasks: Vec<_> = (0..16)
            .map(|_| {
                let database = client.database("shop");
                executor.spawn(async move { database.run_command(doc! { "ping": 1 }).await.map(drop) })
            })
            .collect();
        for task in tasks {
            task.await.expect("a ping");
        }
        client.close().await;
    });
    drop(stop);
    for thread in threads {
        assert!(thread.join().expect("no panic").is_err(), "told to stop");
    }
    assert_eq!(server.count_of("ping"), 16);
}

/// Wakes a thread that sleeps.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Uses nothing of smol except its background threads.
fn block_on_by_hand<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn thread_that_only_parks_and_polls_runs_the_futures() {
    let server = server();
    let reply = block_on_by_hand(async {
        let client = client(options(&server).timeout(core::time::Duration::from_secs(60)));
        let reply = client.database("admin").run_command(doc! { "ping": 1 }).await;
        client.close().await;
        reply
    });
    assert_eq!(reply.expect("a ping").get_f64("ok").ok(), Some(1.0));
}
