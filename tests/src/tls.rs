//! The other side of TLS: certificates of every kind, and servers that present them.
//!
//! Keys are made anew for each use; none is kept anywhere. It shares no code with the crates under test but rustls itself.

mod certificates;
mod folder;
mod server;
mod unverified;

#[cfg(test)]
mod tests;

pub use certificates::{Holder, Identity, Validity, Wanted};
pub use folder::Folder;
pub(crate) use server::Side;
pub use server::{ClientCheck, ServerTls, Versions};
pub(crate) use unverified::unverified;
