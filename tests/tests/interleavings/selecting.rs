//! Tasks that wait for a server while the topology changes.

use super::bench::{Bench, Client, Role};
use super::model::{Depth, explore, join, poll_once, task};
use alloc::sync::Arc;
use core::time::Duration;
use poolhouse_driver::SelectionRequest;

#[test]
fn task_receives_the_server_that_a_check_finds() {
    explore("a first check, and a task that waits for a server", Depth::AllInTime, || {
        let client = Client::new(Bench::new());
        let check = task(client.check());
        let core = Arc::clone(&client.core);
        let selecting = task(async move { core.select_server(&SelectionRequest::WRITE, None).await.map(drop) });
        assert_eq!(join(selecting), Ok(()));
        client.core.close();
        join(check);
        "found"
    });
}

/// The monitor sleeps, and is woken by the waiter.
#[test]
#[doc(alias = "SDAM-85")]
fn task_that_waits_for_a_server_requests_its_check() {
    explore("a check that a task requests", Depth::Preemptions(2), || {
        let bench = Bench::new();
        bench.become_(Role::Secondary);
        let (client, check) = Client::new(bench.clone()).checked();
        bench.become_(Role::Primary);
        bench.let_time_fly(Duration::from_secs(1));
        let tasks = [task(check), task(client.clock())];
        let core = Arc::clone(&client.core);
        let selecting = task(async move { core.select_server(&SelectionRequest::WRITE, None).await.map(drop) });
        assert_eq!(join(selecting), Ok(()));
        client.core.close();
        tasks.into_iter().for_each(join);
        "found"
    });
}

#[test]
fn task_that_waits_for_a_server_is_dropped() {
    explore("a first check, a task that waits and one that is dropped", Depth::Preemptions(3), || {
        let client = Client::new(Bench::new());
        let check = task(client.check());
        let core = Arc::clone(&client.core);
        let quitter = task(async move {
            let _ = poll_once(core.select_server(&SelectionRequest::WRITE, None)).await;
        });
        let core = Arc::clone(&client.core);
        let selecting = task(async move { core.select_server(&SelectionRequest::WRITE, None).await.map(drop) });
        assert_eq!(join(selecting), Ok(()));
        join(quitter);
        client.core.close();
        join(check);
        "found"
    });
}

/// A server that a check discovers is returned to the task that starts the tasks of servers.
#[test]
fn task_that_starts_server_tasks_receives_a_new_server() {
    explore("a check that adds a server, and the task that waits for servers", Depth::Preemptions(4), || {
        let bench = Bench::new();
        bench.become_(Role::Primary);
        let client = Client::new(bench);
        let core = Arc::clone(&client.core);
        let starter = task(async move { core.next_server().await.map(|server| server.address().to_owned()) });
        let check = task(client.check());
        assert_eq!(join(starter).as_deref(), Some("b:27017"));
        client.core.close();
        join(check);
        "started"
    });
}

/// The first of two tasks that wait for a new server may be dropped after it was woken.
#[test]
fn task_that_starts_server_tasks_is_dropped() {
    explore(
        "a check that adds a server, a task that waits for servers and one that is dropped",
        Depth::Preemptions(2),
        || {
            let bench = Bench::new();
            bench.become_(Role::Primary);
            let client = Client::new(bench);
            let core = Arc::clone(&client.core);
            let quitter = task(async move { poll_once(core.next_server()).await.is_ready() });
            let core = Arc::clone(&client.core);
            let starter = task(async move { core.next_server().await.is_some() });
            let check = task(client.check());
            let taken = join(quitter);
            if taken {
                client.core.close();
            }
            assert_ne!(join(starter), taken);
            client.core.close();
            join(check);
            if taken { "started by the task that is dropped" } else { "started by the task that waits" }
        },
    );
}
