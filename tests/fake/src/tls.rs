//! The peer in TLS tests: certificates of every kind, and servers that present them.
//!
//! Keys are generated for each use; none is stored. It shares no code with the crates under test
//! except rustls itself.

mod certificates;
mod folder;
mod server;
mod unverified;

pub use certificates::{CertificateRequest, Holder, Identity, Validity};
pub use folder::Folder;
#[doc(hidden)]
pub use server::Side;
pub use server::{ClientCheck, ServerTls, Versions};
#[doc(hidden)]
pub use unverified::unverified;
