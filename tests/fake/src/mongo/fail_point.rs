//! Fail points in the form of MongoDB's `configureFailPoint: "failCommand"`.
//!
//! A fail point counts only the commands that it matches: by name (`isMaster` and `ismaster` are
//! the same name), and by the application name of the connection's handshake, which applies to that
//! handshake as well. With `appName`, every hello of that application counts: handshakes, checks
//! and RTT checks.

use alloc::collections::BTreeMap;
use core::time::Duration;

use bson::{Bson, Document};

use super::errors::{CommandError, number, whole};

/// The name of the only fail point that a command can configure.
pub const FAIL_COMMAND: &str = "failCommand";

/// When a fail point fires.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum FailPointMode {
    /// Never.
    Off,
    /// For each matching command.
    AlwaysOn,
    /// For the next N matching commands.
    Times(u32),
    /// For each matching command after the next N.
    Skip(u32),
    /// For each matching command with this probability, 0.0 to 1.0.
    Probability(f64),
}

/// A fail point: the commands that it matches and its effects on them.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct FailPoint {
    /// When it fires.
    pub mode: FailPointMode,
    /// Names of the commands.
    pub commands: Vec<String>,
    /// Only connections whose `client.application.name` is this.
    pub app_name: Option<String>,
    /// Fail the command with this code.
    pub error_code: Option<i32>,
    /// Labels of the error.
    pub error_labels: Option<Vec<String>>,
    /// Close the connection (FIN) instead of answering.
    pub close_connection: bool,
    /// Wait before anything else.
    pub block: Option<Duration>,
    /// Run the command and add this `writeConcernError` to its reply.
    pub write_concern_error: Option<Document>,
    /// Run the command and answer with this document instead of its reply.
    pub reply: Option<Document>,
}

impl FailPoint {
    /// Creates a fail point that matches `commands` by `mode` and has no effect yet.
    pub fn new(mode: FailPointMode, commands: &[&str]) -> Self {
        Self {
            mode,
            commands: commands.iter().map(|&name| name.to_owned()).collect(),
            app_name: None,
            error_code: None,
            error_labels: None,
            close_connection: false,
            block: None,
            write_concern_error: None,
            reply: None,
        }
    }

    /// Restricts it to connections of that application.
    #[must_use]
    pub fn app_name(mut self, name: &str) -> Self {
        self.app_name = Some(name.to_owned());
        self
    }

    /// Fails the command with `code`.
    #[must_use]
    pub fn error(mut self, code: i32) -> Self {
        self.error_code = Some(code);
        self
    }

    /// Sets the labels of the error.
    #[must_use]
    pub fn labels(mut self, labels: &[&str]) -> Self {
        self.error_labels = Some(labels.iter().map(|&label| label.to_owned()).collect());
        self
    }

    /// Closes the connection.
    #[must_use]
    pub fn close(mut self) -> Self {
        self.close_connection = true;
        self
    }

    /// Waits before anything else.
    #[must_use]
    pub fn block(mut self, time: Duration) -> Self {
        self.block = Some(time);
        self
    }

    /// Runs the command and adds this `writeConcernError` to its reply.
    #[must_use]
    pub fn write_concern_error(mut self, error: Document) -> Self {
        self.write_concern_error = Some(error);
        self
    }

    /// Runs the command and answers with this document instead of its reply.
    #[must_use]
    pub fn reply(mut self, reply: Document) -> Self {
        self.reply = Some(reply);
        self
    }

    /// Parses the command `configureFailPoint`.
    pub(crate) fn parse(command: &Document) -> Result<Self, CommandError> {
        let mode = command
            .get("mode")
            .ok_or_else(|| CommandError::new(20, "When setting a failpoint, you must supply a 'mode'"))?;
        let mut point = Self::new(parse_mode(mode)?, &[]);
        let empty = Document::new();
        let data = match command.get("data") {
            None => &empty,
            Some(data) => data.as_document().ok_or_else(|| CommandError::new(14, "data must be an object"))?,
        };
        if let Some(names) = data.get("failCommands") {
            point.commands = strings(names, "failCommands")?;
        }
        if let Some(name) = data.get("appName") {
            point.app_name = Some(name.as_str().ok_or_else(|| bad("appName must be a string"))?.to_owned());
        }
        if let Some(code) = data.get("errorCode") {
            let code = whole(code).and_then(|code| i32::try_from(code).ok());
            point.error_code = Some(code.ok_or_else(|| bad("errorCode must be an integer"))?);
        }
        if let Some(labels) = data.get("errorLabels") {
            point.error_labels = Some(strings(labels, "errorLabels")?);
        }
        point.close_connection = super::state::truthy(data, "closeConnection");
        if super::state::truthy(data, "blockConnection") {
            let time = data.get("blockTimeMS").and_then(whole).and_then(|time| u64::try_from(time).ok());
            let time = time.ok_or_else(|| {
                CommandError::new(72, "must specify a non-negative 'blockTimeMS' when 'blockConnection' is true")
            })?;
            point.block = Some(Duration::from_millis(time));
        }
        if let Some(error) = data.get("writeConcernError") {
            let error = error.as_document().ok_or_else(|| bad("writeConcernError must be an object"))?;
            point.write_concern_error = Some(error.clone());
        }
        Ok(point)
    }

    fn matches(&self, command: &str, app_name: Option<&str>) -> bool {
        self.commands.iter().any(|name| same_command(name, command))
            && self.app_name.as_deref().is_none_or(|name| Some(name) == app_name)
    }

    fn fires(&mut self, entropy: u64) -> bool {
        match &mut self.mode {
            FailPointMode::Off => false,
            FailPointMode::AlwaysOn => true,
            FailPointMode::Times(0) => false,
            FailPointMode::Times(left) => {
                *left -= 1;
                if *left == 0 {
                    self.mode = FailPointMode::Off;
                }
                true
            }
            FailPointMode::Skip(0) => true,
            FailPointMode::Skip(left) => {
                *left -= 1;
                false
            }
            FailPointMode::Probability(share) => {
                #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
                let drawn = (entropy >> 11) as f64 / (1_u64 << 53) as f64;
                drawn < *share
            }
        }
    }
}

fn same_command(one: &str, other: &str) -> bool {
    one == other || (one.eq_ignore_ascii_case("ismaster") && other.eq_ignore_ascii_case("ismaster"))
}

fn bad(message: &str) -> CommandError {
    CommandError::new(2, message)
}

fn strings(value: &Bson, what: &str) -> Result<Vec<String>, CommandError> {
    let fail = || bad(&format!("{what} must be an array of strings"));
    let values = value.as_array().ok_or_else(fail)?;
    values.iter().map(|value| value.as_str().map(str::to_owned).ok_or_else(fail)).collect()
}

fn parse_mode(mode: &Bson) -> Result<FailPointMode, CommandError> {
    if let Some(word) = mode.as_str() {
        return match word {
            "off" => Ok(FailPointMode::Off),
            "alwaysOn" => Ok(FailPointMode::AlwaysOn),
            _ => Err(bad(&format!("unknown mode: {word}"))),
        };
    }
    let mode = mode.as_document().ok_or_else(|| CommandError::new(14, "'mode' must be a string or JSON object"))?;
    let count = |name: &str| -> Result<Option<u32>, CommandError> {
        let Some(value) = mode.get(name) else { return Ok(None) };
        let count = whole(value).and_then(|count| u32::try_from(count).ok());
        count.map(Some).ok_or_else(|| bad(&format!("'{name}' option must be a whole number that is not negative")))
    };
    if let Some(times) = count("times")? {
        return Ok(FailPointMode::Times(times));
    }
    if let Some(skip) = count("skip")? {
        return Ok(FailPointMode::Skip(skip));
    }
    if let Some(share) = mode.get("activationProbability") {
        let share = number(share).filter(|share| (0.0..=1.0).contains(share));
        return share
            .map(FailPointMode::Probability)
            .ok_or_else(|| bad("activationProbability must be between 0.0 and 1.0"));
    }
    Err(bad("'mode' must be one of 'off', 'alwaysOn', 'times', 'skip', and 'activationProbability'"))
}

/// The effects of a fail point on one command.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) block: Option<Duration>,
    pub(crate) close: bool,
    pub(crate) error: Option<CommandError>,
    pub(crate) write_concern_error: Option<Document>,
    pub(crate) labels: Option<Vec<String>>,
    pub(crate) reply: Option<Document>,
}

/// The fail points, by name; of those that fire the first in the order of names is applied.
#[derive(Debug, Default)]
pub(crate) struct FailPoints {
    points: BTreeMap<String, (FailPoint, u64)>,
}

impl FailPoints {
    const POINTS_MAX: usize = 64;

    /// Sets or replaces a fail point; returns how many times the one of this name has fired.
    pub(crate) fn set(&mut self, name: &str, point: FailPoint) -> u64 {
        let fired = self.fired(name);
        if self.points.len() < Self::POINTS_MAX || self.points.contains_key(name) {
            self.points.insert(name.to_owned(), (point, fired));
        }
        fired
    }

    fn fired(&self, name: &str) -> u64 {
        self.points.get(name).map_or(0, |(_, fired)| *fired)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.points.clear();
    }

    /// Evaluates the fail points for one command. `configureFailPoint` itself never fails.
    pub(crate) fn judge(&mut self, command: &str, app_name: Option<&str>, mut entropy: impl FnMut() -> u64) -> Verdict {
        if self.points.is_empty() || command == "configureFailPoint" {
            return Verdict::default();
        }
        for (point, fired) in self.points.values_mut() {
            if point.matches(command, app_name) && point.fires(entropy()) {
                *fired += 1;
                let error = point.error_code.map(|code| CommandError {
                    code,
                    message: "Failing command via 'failCommand' failpoint".to_owned(),
                    labels: point.error_labels.clone(),
                });
                return Verdict {
                    block: point.block,
                    close: point.close_connection,
                    error,
                    write_concern_error: point.write_concern_error.clone(),
                    labels: point.error_labels.clone(),
                    reply: point.reply.clone(),
                };
            }
        }
        Verdict::default()
    }
}

impl Verdict {
    /// Replaces the reply of a command that was executed, or adds the write concern error to it.
    pub(crate) fn amend(&self, reply: &mut Document) {
        if let Some(other) = &self.reply {
            reply.clone_from(other);
        }
        let Some(error) = &self.write_concern_error else { return };
        reply.insert("writeConcernError", error.clone());
        if let Some(labels) = &self.labels {
            reply.insert("errorLabels", labels.clone());
        }
    }
}
