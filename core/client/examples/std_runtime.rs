//! The client on a custom runtime, which uses threads and sockets of the standard library. The
//! runtime is in a separate file.
//!
//! `cargo run -p poolhouse-client --example std_runtime -- host:port` (or a connection string)
//!
//! Sends a ping and prints the servers that the client has found.

extern crate alloc;

#[expect(clippy::std_instead_of_alloc, clippy::std_instead_of_core, reason = "an example of the standard library")]
#[path = "std_runtime/runtime.rs"]
mod runtime;

use alloc::sync::Arc;
use alloc::task::Wake;
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use poolhouse_client::{Client, Error};
use runtime::Std;
use std::process::ExitCode;
use std::thread::{self, Thread};
use std::time::Instant;

fn main() -> ExitCode {
    let Some(server) = std::env::args().nth(1) else {
        eprintln!("usage: std_runtime HOST:PORT | CONNECTION-STRING");
        return ExitCode::FAILURE;
    };
    match block_on(ping(&server)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn ping(server: &str) -> Result<(), Error> {
    let uri = if server.contains("://") { server.to_owned() } else { format!("mongodb://{server}") };
    let client = Client::<Std>::new(&uri).await?;
    for which in ["a ping with server selection and connecting took", "a second ping took"] {
        let begun = Instant::now();
        client.run_command("admin", bson::doc! { "ping": 1 }).await?;
        println!("{which} {:?}", begun.elapsed());
    }
    for server in client.servers() {
        println!("{}: {:?}, {:?}", server.address, server.server_type, server.pool.counts);
    }
    client.close().await;
    Ok(())
}

/// Runs a future on this thread.
fn block_on<F: Future>(work: F) -> F::Output {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut work = pin!(work);
    loop {
        if let Poll::Ready(output) = work.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park();
    }
}
