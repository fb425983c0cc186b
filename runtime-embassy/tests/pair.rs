//! The client on two network stacks that are joined in memory, against fake servers on the host:
//! results for the application, and state on the server.

extern crate alloc;

mod pair {
    mod authentication;
    mod basics;
    mod cancellation;
    mod closing;
    mod failures;
    mod idleness;
    mod limits;
    mod modem;
    mod nal;
    mod names;
    mod net;
    mod pool;
    mod queue;
    mod ram;
    mod replica_set;
    mod replies;
    mod support;
    mod telemetry;
    #[cfg(feature = "tls")]
    mod tls;
}
