//! `$readPreference`: passing the client's preference to a server.

use poolhouse_core::selection::{ReadMode, ReadPreference};
use poolhouse_wire::bson::DocumentWriter;
use poolhouse_wire::{EncodeError, Sink};

/// Appends `$readPreference` to a command.
///
/// # Errors
///
/// [`EncodeError`].
///
/// Source: Server Selection, "Passing read preference to mongos and load balancers".
pub fn append_read_preference<S: Sink>(
    command: &mut DocumentWriter<'_, S>,
    preference: &ReadPreference<'_>,
) -> Result<(), EncodeError> {
    let options = preference.options();
    let written = command.document("$readPreference", |document| {
        document.str("mode", mode_name(options.mode))?;
        if !options.tag_sets.is_empty() {
            document.array("tags", |sets| {
                options.tag_sets.iter().try_for_each(|tags| {
                    let set = |set: &mut DocumentWriter<'_, S>| {
                        tags.iter().try_for_each(|(name, value)| set.str(name, value).map(drop))
                    };
                    sets.document(set).map(drop)
                })
            })?;
        }
        match options.max_staleness_seconds {
            Some(seconds) => {
                document.int64("maxStalenessSeconds", i64::try_from(seconds).unwrap_or(i64::MAX)).map(drop)
            }
            None => Ok(()),
        }
    });
    written.map(drop)
}

/// The name of the mode in commands.
const fn mode_name(mode: ReadMode) -> &'static str {
    match mode {
        ReadMode::Primary => "primary",
        ReadMode::PrimaryPreferred => "primaryPreferred",
        ReadMode::Secondary => "secondary",
        ReadMode::SecondaryPreferred => "secondaryPreferred",
        ReadMode::Nearest => "nearest",
    }
}
