//! The client on two network stacks that are joined in memory, against fake servers on the host: what an application sees, and what the server sees
//! of it.

extern crate alloc;

mod pair {
    mod basics;
    mod cancellation;
    mod closing;
    mod failures;
    mod limits;
    mod net;
    mod replies;
    mod support;
    #[cfg(feature = "tls")]
    mod tls;
}
