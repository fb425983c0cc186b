//! Owners that panic while they have a connection.

use super::STACK_BYTES;
use crate::Case;
use crate::server::{Server, document, element};
use poolhouse_smol::bson::doc;
use poolhouse_smol::{Client, Connection, Error, Manager, Pool};
use smol::future::FutureExt as _;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU32, Ordering};

/// A manager whose connections are numbered.
#[derive(Default)]
struct Numbers {
    next: AtomicU32,
    survives_panic: bool,
}

impl Manager for Numbers {
    type Connection = u32;
    type Error = Infallible;

    async fn connect(&self) -> Result<u32, Infallible> {
        Ok(self.next.fetch_add(1, Ordering::SeqCst))
    }

    fn survives_panic(&self, _: &u32) -> bool {
        self.survives_panic
    }
}

/// The number of the connection that the owner after a panic gets.
fn next_number(manager: Numbers) -> u32 {
    smol::block_on(async {
        let pool = Pool::builder(manager).max_size(1).build().expect("valid options");
        let owner = async {
            let _connection = pool.get().await.expect("a connection");
            panic!("as the case wants it");
        };
        assert!(AssertUnwindSafe(owner).catch_unwind().await.is_err());
        *pool.get().await.expect("another connection")
    })
}

/// The number of connections that had commands, after a panic between two of them.
async fn connections_after(panics: impl AsyncFnOnce(&Client)) -> usize {
    let ok = |_: &str, _: &_| document(&[&element(0x10, "ok", &1_i32.to_le_bytes())]);
    let server = Server::start(ok);
    let client = Client::new(&server.uri).await.expect("a client");
    assert!(AssertUnwindSafe(panics(&client)).catch_unwind().await.is_err());
    client.run_command("shop", doc! { "ping": 1 }).await.expect("another connection");
    client.close().await;
    server.connections.load(Ordering::SeqCst)
}

async fn ping_and_panic(connection: &mut Connection<'_>) -> Result<(), Error> {
    connection.run_command("shop", doc! { "ping": 1 }).await?;
    panic!("as the case wants it");
}

pub(super) fn cases() -> Vec<Case> {
    let case = |name, run| Case { name, stack_bytes: STACK_BYTES, run };
    vec![
        case("panic: the next owner of a generic pool gets another connection", || {
            assert_eq!(next_number(Numbers::default()), 1);
        }),
        case("panic: a manager keeps the connection", || {
            assert_eq!(next_number(Numbers { survives_panic: true, ..Numbers::default() }), 0);
        }),
        case("panic: a connection of the client that was checked out is closed", || {
            let panics = async |client: &Client| {
                let mut connection = client.check_out().await.expect("a connection");
                ping_and_panic(&mut connection).await.expect("a reply");
            };
            assert_eq!(smol::block_on(connections_after(panics)), 2);
        }),
        case("panic: a connection of with_connection is closed", || {
            let panics = async |client: &Client| client.with_connection(ping_and_panic).await.expect("a reply");
            assert_eq!(smol::block_on(connections_after(panics)), 2);
        }),
    ]
}
