//! A database of the deployment.

use super::{Client, CommandOptions, Error, Platform};
use alloc::sync::Arc;
use core::fmt;

impl<P: Platform> Client<P> {
    /// The database of this name. Performs no I/O: that it exists, or that the name is a good one, is for servers to say.
    #[must_use]
    pub fn database(&self, name: &str) -> Database<P> {
        Database { client: self.clone(), name: name.into() }
    }

    /// The database that the connection string or [`ClientOptions::default_database`](super::ClientOptions#structfield.default_database)
    /// names; `None` if they name none.
    #[must_use]
    pub fn default_database(&self) -> Option<Database<P>> {
        self.options().default_database.as_deref().map(|name| self.database(name))
    }
}

/// A database of a client: a handle that is cheap to clone and share. The client lives as long as one of its handles.
pub struct Database<P: Platform> {
    client: Client<P>,
    name: Arc<str>,
}

impl<P: Platform> Database<P> {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its client.
    #[must_use]
    pub const fn client(&self) -> &Client<P> {
        &self.client
    }

    /// [`Client::run_command`] on this database.
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn run_command(&self, command: bson::Document) -> Result<bson::Document, Error> {
        self.client.run_command(&self.name, command).await
    }

    /// [`Client::run_command_with`] on this database.
    ///
    /// # Errors
    ///
    /// As [`Client::run_command`].
    pub async fn run_command_with(
        &self,
        command: bson::Document,
        options: CommandOptions<'_>,
    ) -> Result<bson::Document, Error> {
        self.client.run_command_with(&self.name, command, options).await
    }

    /// [`Client::run_raw_command`] on this database.
    ///
    /// # Errors
    ///
    /// As [`Client::run_command`].
    pub async fn run_raw_command(&self, command: &bson::RawDocument) -> Result<bson::RawDocumentBuf, Error> {
        self.client.run_raw_command(&self.name, command).await
    }

    /// [`Client::run_raw_command_with`] on this database.
    ///
    /// # Errors
    ///
    /// As [`Client::run_command`].
    pub async fn run_raw_command_with(
        &self,
        command: &bson::RawDocument,
        options: CommandOptions<'_>,
    ) -> Result<bson::RawDocumentBuf, Error> {
        self.client.run_raw_command_with(&self.name, command, options).await
    }
}

impl<P: Platform> Clone for Database<P> {
    fn clone(&self) -> Self {
        Self { client: self.client.clone(), name: Arc::clone(&self.name) }
    }
}

impl<P: Platform> fmt::Debug for Database<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("name", &self.name).finish_non_exhaustive()
    }
}
