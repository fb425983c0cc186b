//! The orders in the database. This module has all commands of the service, and no HTTP.

use core::time::Duration;
use poolhouse_smol::bson::{doc, serialize_to_document};
use poolhouse_smol::{Client, ClientSession, ClientSessionOptions, Cursor, Database, Error};
use poolhouse_smol::{ServerStatus, TransactionOptions, WriteConcern};
use serde::{Deserialize, Serialize};

/// Longer than an election: a request waits for the new primary.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(30);
/// A primary that no longer answers is detected within the sum of both.
const HEARTBEAT_FREQUENCY: Duration = Duration::from_secs(2);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const DUPLICATE_KEY: i32 = 11_000;

/// An order, in the database and in JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    /// Chosen by the caller, because a request with a number can be repeated: no two orders have the same.
    pub(crate) number: String,
    pub(crate) customer: String,
    pub(crate) amount_cents: i64,
    #[serde(default)]
    pub(crate) what: String,
    #[serde(default)]
    pub(crate) paid: bool,
}

/// The reason why a request has no effect.
#[derive(Debug)]
pub(crate) enum Failure {
    NumberTaken,
    NotFound,
    AlreadyPaid,
    Database(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

/// The reply to `findAndModify`: the order before the change.
#[derive(Deserialize)]
struct Changed {
    value: Option<Order>,
}

#[derive(Clone, Debug)]
pub(crate) struct Orders {
    database: Database,
}

impl Orders {
    /// Connects, and creates the indexes.
    pub(crate) async fn open(uri: &str) -> Result<Self, Error> {
        let client = Client::new_with(uri, |options| {
            let options = options.app_name("order_service").timeout(OPERATION_TIMEOUT).min_pool_size(2);
            options.heartbeat_frequency(HEARTBEAT_FREQUENCY).connect_timeout(CONNECT_TIMEOUT)
        })
        .await?;
        client.warm_up(OPERATION_TIMEOUT).await?;
        let database = client.default_database().unwrap_or_else(|| client.database("shop"));
        let number = doc! { "key": { "number": 1 }, "name": "number", "unique": true };
        let customer = doc! { "key": { "customer": 1 }, "name": "customer" };
        let majority = WriteConcern::majority().to_document();
        let create = doc! { "createIndexes": "orders", "indexes": [number, customer], "writeConcern": majority };
        database.run_command(create).await?;
        Ok(Self { database })
    }

    /// Returns when a majority of the members has the order.
    pub(crate) async fn insert(&self, order: Order) -> Result<(), Failure> {
        let order = serialize_to_document(&Order { paid: false, ..order }).map_err(Error::from)?;
        let majority = WriteConcern::majority().to_document();
        let insert = doc! { "insert": "orders", "documents": [order], "writeConcern": majority };
        match self.database.run_command(insert).await {
            Ok(_) => Ok(()),
            Err(Error::Write(error)) if error.code == DUPLICATE_KEY => Err(Failure::NumberTaken),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) async fn find(&self, number: &str) -> Result<Order, Failure> {
        let find = doc! { "find": "orders", "filter": { "number": number }, "limit": 1 };
        let mut found = self.database.run_cursor_command(find).await?;
        found.try_next().await?.ok_or(Failure::NotFound)
    }

    /// The orders of a customer, in batches: the service holds one batch at a time.
    pub(crate) async fn of_customer(&self, customer: &str) -> Result<Cursor<Order>, Error> {
        let find = doc! { "find": "orders", "filter": { "customer": customer }, "batchSize": 100 };
        self.database.run_cursor_command(find).await
    }

    /// Marks an order as paid and records the payment: both or neither.
    pub(crate) async fn pay(&self, number: &str) -> Result<(), Failure> {
        let mut session = self.database.client().start_session(ClientSessionOptions::new());
        // Owned, because a task cannot be spawned if this closure borrows.
        let (shop, number) = (self.database.name().to_owned(), number.to_owned());
        let work = async move |session: &mut ClientSession| {
            let query = doc! { "number": &number };
            let change = doc! { "findAndModify": "orders", "query": query, "update": { "$set": { "paid": true } } };
            let Changed { value } = session.run_command_as(&shop, change).await?;
            let order = value.ok_or(Failure::NotFound)?;
            if order.paid {
                return Err(Failure::AlreadyPaid);
            }
            let payment = doc! { "number": &number, "amount_cents": order.amount_cents };
            session.run_command(&shop, doc! { "insert": "payments", "documents": [payment] }).await?;
            Ok(())
        };
        session.with_transaction(TransactionOptions::new().write_concern(WriteConcern::majority()), work).await
    }

    /// The servers, and whether one of them accepts writes.
    pub(crate) fn health(&self) -> (bool, Vec<ServerStatus>) {
        let client = self.database.client();
        (client.topology().has_writable_server(), client.servers())
    }

    pub(crate) async fn close(&self) {
        self.database.client().close().await;
    }
}
