//! The interface of DNS resolvers.

use super::answer::SrvAnswer;
use super::error::{LookupError, SeedlistError};
use super::seedlist::SrvQuestion;
use crate::ConnectionString;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use async_trait::async_trait;
use core::fmt;
use core::net::IpAddr;

/// A DNS resolver: the built-in one of an adapter, or a custom one.
///
/// A lookup must end in bounded time, or when its future is dropped: a client drops it when it is
/// closed.
#[async_trait]
pub trait Resolver: fmt::Debug + Send + Sync {
    /// Returns the SRV records of this name, which is complete: no search domain must be appended.
    ///
    /// # Errors
    ///
    /// [`LookupError`], also if there are no records.
    async fn lookup_srv(&self, name: &str) -> Result<SrvAnswer, LookupError>;

    /// Returns the TXT records of this name, which is complete. The strings of each record are
    /// joined.
    ///
    /// # Errors
    ///
    /// [`LookupError`], also if there are no records.
    async fn lookup_txt(&self, name: &str) -> Result<Vec<String>, LookupError>;

    /// Returns the addresses of a server's host, in the order to try them. `None`, the default,
    /// leaves the lookup to the platform.
    ///
    /// # Errors
    ///
    /// [`LookupError`], also if there are no records.
    async fn lookup_addresses(&self, _host: &str) -> Option<Result<Vec<IpAddr>, LookupError>> {
        None
    }
}

impl SrvQuestion {
    /// Looks up the hosts and options of a connection string, and returns the resolved string,
    /// together with the SRV records for an [`SrvPoll`](super::SrvPoll).
    ///
    /// - `entropy`: random bits for the selection of hosts.
    ///
    /// # Errors
    ///
    /// As [`SrvQuestion::resolve`]; [`SeedlistError::Srv`]; [`SeedlistError::Txt`], except if no
    /// TXT record exists.
    ///
    /// Source: Initial DNS Seedlist Discovery, "Querying DNS".
    pub async fn look_up(
        &self,
        uri: &ConnectionString,
        resolver: &dyn Resolver,
        entropy: u64,
    ) -> Result<(ConnectionString, SrvAnswer), SeedlistError> {
        let name = self.srv_name();
        let answer = match resolver.lookup_srv(&name).await {
            Ok(answer) => answer,
            Err(error) => return Err(SeedlistError::Srv { name, error }),
        };
        // Checks the hosts first, so invalid ones fail before the TXT lookup.
        self.hosts(&answer, entropy)?;
        let txt = match resolver.lookup_txt(self.txt_name()).await {
            Ok(records) => records,
            Err(error) if error.is_not_found() => Vec::new(),
            Err(error) => return Err(SeedlistError::Txt { name: self.txt_name().into(), error }),
        };
        Ok((self.resolve(uri, &answer, &txt, entropy)?, answer))
    }
}
