//! The commands of a user, given by a key or by a button of the page.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Fails the primary over; kills a node of Cassandra, or restarts it.
    FailOver,
    /// Freezes the primary or a node, or thaws the frozen one.
    Freeze,
    Quit,
}
