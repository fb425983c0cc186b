//! Hello: client metadata and options of a connection, and the server's description of itself.
//!
//! Read first: MongoDB Handshake, "Connection handshake" and "Client metadata"; Server Monitoring,
//! "hello or legacy hello"; SDAM, "Parsing a hello or legacy hello response".

mod environment;
mod exchange;
mod metadata;
mod reply;
mod request;
#[cfg(test)]
mod tests;

pub use environment::{Environment, Faas};
pub use exchange::HelloExchange;
pub use metadata::{APPLICATION_NAME_BYTES_MAX, ClientMetadata, METADATA_BYTES_MAX, MetadataError, MetadataOptions};
pub use reply::{HelloReply, Sizes};
pub(crate) use request::encode_handshake_hello_with;
pub use request::{HandshakeHello, HelloCommand, HelloKind, ServerApi, encode_hello};
