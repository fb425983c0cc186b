//! Handles of the deployment's databases.

use super::{Client, CommandOptions, Error, Platform};
use alloc::sync::Arc;
use core::fmt;
use serde::de::DeserializeOwned;

impl<P: Platform> Client<P> {
    /// Returns a handle of the database with this name. Performs no I/O: the server checks the name
    /// when a command runs.
    #[must_use]
    pub fn database(&self, name: &str) -> Database<P> {
        Database { client: self.clone(), name: name.into() }
    }

    /// Returns a handle of the database named in the connection string or in
    /// [`ClientOptions::default_database`](super::ClientOptions#structfield.default_database);
    /// `None` if neither names one.
    #[must_use]
    pub fn default_database(&self) -> Option<Database<P>> {
        self.options().default_database.as_deref().map(|name| self.database(name))
    }
}

/// A database of a client: a handle that is cheap to clone and share. The handle keeps the client
/// open.
pub struct Database<P: Platform> {
    client: Client<P>,
    name: Arc<str>,
}

impl<P: Platform> Database<P> {
    /// Returns the database's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the client of this handle.
    #[must_use]
    pub const fn client(&self) -> &Client<P> {
        &self.client
    }

    /// Runs a command on this database, as [`Client::run_command`] does.
    ///
    /// # Errors
    ///
    /// As [`Client::run_command`].
    pub async fn run_command(&self, command: bson::Document) -> Result<bson::Document, Error> {
        self.client.run_command(&self.name, command).await
    }

    /// Runs a command with options on this database, as [`Client::run_command_with`] does.
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

    /// Runs a command on this database and decodes the reply, as [`Client::run_command_as`] does.
    ///
    /// # Errors
    ///
    /// As [`Client::run_command_as`].
    pub async fn run_command_as<T: DeserializeOwned + Send>(&self, command: bson::Document) -> Result<T, Error> {
        self.client.run_command_as(&self.name, command).await
    }

    /// Runs a command with options on this database and decodes the reply, as
    /// [`Client::run_command_as_with`] does.
    ///
    /// # Errors
    ///
    /// As [`Client::run_command_as`].
    pub async fn run_command_as_with<T: DeserializeOwned + Send>(
        &self,
        command: bson::Document,
        options: CommandOptions<'_>,
    ) -> Result<T, Error> {
        self.client.run_command_as_with(&self.name, command, options).await
    }

    /// Runs a raw command on this database, as [`Client::run_raw_command`] does.
    ///
    /// # Errors
    ///
    /// As [`Client::run_command`].
    pub async fn run_raw_command(&self, command: &bson::RawDocument) -> Result<bson::RawDocumentBuf, Error> {
        self.client.run_raw_command(&self.name, command).await
    }

    /// Runs a raw command with options on this database, as [`Client::run_raw_command_with`] does.
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
