//! Connections that are established for waiters.

use super::bench::{Bench, Client};
use super::model::{Depth, explore, join, task};
use poolhouse_core::Cause;
use poolhouse_core::pool::{CheckOutError, PoolCounts};
use poolhouse_driver::OperationError;

async fn check_out(client: Client) -> Result<(), OperationError> {
    client.check_out().await.map(drop)
}

#[test]
fn two_tasks_share_the_connection_established_for_one() {
    explore("two tasks wait for a worker", Depth::Preemptions(3), || {
        let client = Client::new(Bench::new()).known();
        let worker = task(client.worker());
        let tasks = [task(check_out(client.clone())), task(check_out(client.clone()))];
        for task in tasks {
            assert_eq!(join(task), Ok(()));
        }
        assert_eq!(client.counts(), PoolCounts { available: 1, ..PoolCounts::default() });
        client.core.close();
        join(worker);
        "both"
    });
}

/// The pool is cleared, so both waiters fail.
#[test]
fn two_tasks_receive_the_error_of_one_establishment() {
    explore("two tasks wait for a worker that fails", Depth::Preemptions(2), || {
        let client = Client::new(Bench::new()).known();
        client.bench.refuse();
        let worker = task(client.worker());
        let tasks = [task(check_out(client.clone())), task(check_out(client.clone()))];
        for task in tasks {
            let error = join(task).expect_err("the peer refuses connections");
            let error = error.check_out().expect("a check-out error");
            let failed = CheckOutError::EstablishFailed { cause: Cause::Network, overloaded: true };
            let cleared = CheckOutError::PoolCleared { cause: Some(Cause::Network) };
            assert!([failed, cleared].contains(error), "{error:?}");
        }
        assert_eq!(client.counts(), PoolCounts::default());
        client.core.close();
        join(worker);
        "both"
    });
}

#[test]
fn a_pool_that_is_warmed_up_is_filled() {
    explore("a task warms the pool up, another one checks out", Depth::Preemptions(2), || {
        let client = Client::new(Bench::new()).known();
        let worker = task(client.worker());
        let warmer = client.clone();
        let warmer = task(async move {
            let request = poolhouse_driver::SelectionRequest::WRITE;
            warmer.core.warm_up(&request, Some(1), None).await
        });
        let other = task(check_out(client.clone()));
        assert_eq!(join(warmer), Ok(()));
        assert_eq!(join(other), Ok(()));
        client.core.close();
        join(worker);
        "both"
    });
}
