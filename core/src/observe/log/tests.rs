//! Every message with every field, as a subscriber gets them.

pub(crate) mod capture;
mod connection;
mod options;
mod silence;
mod topology;

use super::*;
use crate::observe::Within;
use capture::{Captured, capture};

fn logs(options: LogOptions) -> Within<'static, Logs> {
    Within::new(Logs::new(options), EventContext::of_server("db.example:27018"))
}

const TEXT: LogOptions = LogOptions { style: LogStyle::Text, ..LogOptions::DEFAULT };
