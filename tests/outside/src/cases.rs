//! The cases.

mod depth;
mod panics;
mod text;

use crate::Case;
use poolhouse_smol::bson::{Document, doc};
use poolhouse_smol::{Client, CommandOptions, Cursor, CursorOptions, Error};
use serde::de::DeserializeOwned;

const KIB: usize = 1024;
/// The stack of a thread by default.
const STACK_BYTES: usize = 2048 * KIB;
/// A small stack, as of a thread of some executors.
const SMALL_STACK_BYTES: usize = 256 * KIB;

pub(crate) fn all() -> Vec<Case> {
    [depth::cases(), text::cases(), panics::cases()].concat()
}

fn find() -> Document {
    doc! { "find": "items" }
}

async fn cursor<T>(client: &Client) -> Result<Cursor<T>, Error> {
    client.database("shop").run_cursor_command(find()).await
}

/// All results of a cursor.
async fn read<T: DeserializeOwned + Send>(client: &Client) -> Vec<Result<T, Error>> {
    let mut cursor = cursor::<T>(client).await.expect("a cursor");
    let mut results = Vec::new();
    while let Some(result) = cursor.try_next().await.transpose() {
        results.push(result);
    }
    results
}

/// The first result of a cursor in a session.
async fn first_in_session<T: DeserializeOwned + Send>(client: &Client) -> Result<Option<T>, Error> {
    let mut session = client.start_session(Default::default());
    let options = (CommandOptions::new(), CursorOptions::new());
    let mut cursor = session.run_cursor_command::<T>("shop", find(), options.0, options.1).await?;
    cursor.try_next(&mut session).await
}

/// The text of an error.
fn refused<T>(result: Result<T, Error>) -> String {
    match result {
        Ok(_) => panic!("it is refused"),
        Err(error) => error.to_string(),
    }
}
