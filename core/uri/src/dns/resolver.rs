//! Whom the client asks.

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

/// Looks names up: the built-in resolver of an adapter, or one of the user's own.
///
/// A lookup may take as long as it likes only if it can be dropped: a client that is closed drops it.
#[async_trait]
pub trait Resolver: fmt::Debug + Send + Sync {
    /// The SRV records of this name, which is complete: no domain is to be added to it.
    ///
    /// # Errors
    ///
    /// [`LookupError`]; that there are none is one.
    async fn lookup_srv(&self, name: &str) -> Result<SrvAnswer, LookupError>;

    /// The TXT records of this name, which is complete, the strings of each joined.
    ///
    /// # Errors
    ///
    /// [`LookupError`]; that there are none is one.
    async fn lookup_txt(&self, name: &str) -> Result<Vec<String>, LookupError>;

    /// The addresses of a server's host, in the order to try them. `None`, the default, leaves hosts to the platform.
    ///
    /// # Errors
    ///
    /// [`LookupError`]; that there are none is one.
    async fn lookup_addresses(&self, _host: &str) -> Option<Result<Vec<IpAddr>, LookupError>> {
        None
    }
}

impl SrvQuestion {
    /// Asks for the hosts of a string and for its options, and puts them in. What was found of the hosts is there, too, for an
    /// [`SrvPoll`](super::SrvPoll).
    ///
    /// - `entropy`: random bits for the choice of hosts.
    ///
    /// # Errors
    ///
    /// As [`SrvQuestion::resolve`]; [`SeedlistError::Srv`]; [`SeedlistError::Txt`] unless it is that there is no such record.
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
        // Nothing more is asked about hosts that are not to be trusted.
        self.hosts(&answer, entropy)?;
        let txt = match resolver.lookup_txt(self.txt_name()).await {
            Ok(records) => records,
            Err(error) if error.is_not_found() => Vec::new(),
            Err(error) => return Err(SeedlistError::Txt { name: self.txt_name().into(), error }),
        };
        Ok((self.resolve(uri, &answer, &txt, entropy)?, answer))
    }
}
