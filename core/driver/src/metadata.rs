//! The client metadata of new connections, which may change while the client is open.
//!
//! Read first: MongoDB Handshake, "Metadata updates after MongoClient initialization".

use super::client_core::ClientCore;
#[cfg(feature = "alloc")]
use super::runtime::Locked as _;
use super::runtime::Runtime;
#[cfg(feature = "alloc")]
use alloc::sync::Arc;
use core::ops::Deref;
use poolhouse_wire::hello::ClientMetadata;

/// The metadata of one handshake. Without a heap it does not change.
pub(super) enum Metadata<'a> {
    /// That of the configuration.
    Configured(&'a ClientMetadata),
    /// It was changed since. It is shared, because a copy in the future of each handshake would
    /// enlarge that.
    #[cfg(feature = "alloc")]
    Changed(Arc<ClientMetadata>),
}

impl Deref for Metadata<'_> {
    type Target = ClientMetadata;

    fn deref(&self) -> &ClientMetadata {
        match self {
            Self::Configured(metadata) => metadata,
            #[cfg(feature = "alloc")]
            Self::Changed(metadata) => metadata,
        }
    }
}

impl<R: Runtime> ClientCore<R> {
    /// Returns the metadata of a handshake that begins now.
    pub(super) fn metadata(&self) -> Metadata<'_> {
        #[cfg(feature = "alloc")]
        if let Some(metadata) = self.state.with(|state| state.metadata.clone()) {
            return Metadata::Changed(metadata);
        }
        Metadata::Configured(&self.config().metadata)
    }

    /// Changes the client's metadata for connections that are established from now on: those of pools
    /// and of monitors. Established connections, and handshakes that have begun, keep theirs. Does
    /// nothing in the child of a fork.
    ///
    /// Cost: one allocation. Check-outs are not affected.
    ///
    /// Source: MongoDB Handshake, "Metadata updates after MongoClient initialization".
    #[cfg(feature = "alloc")]
    pub fn set_metadata(&self, metadata: ClientMetadata) {
        if self.is_forked() {
            return;
        }
        let metadata = Arc::new(metadata);
        // The former value is dropped without the lock.
        drop(self.state.with(|state| state.metadata.replace(metadata)));
    }
}
