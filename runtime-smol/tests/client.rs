//! The client on smol against the fake server: results for the application, and state on the
//! server.

extern crate alloc;

mod client {
    mod basics;
    mod cancellation;
    mod check_out_limits;
    mod closing;
    mod failures;
    mod late_replies;
    mod lifecycle;
    mod panics;
    mod pool_options;
    mod replies;
    mod support;
}
