//! The commands of a user, given by a key or by a button of the page.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    FailOver,
    /// Freezes the primary, or thaws the frozen member.
    Freeze,
    Quit,
}
