//! Options and the environment (LOG-34, LOG-36).

use super::*;
use alloc::format;
use alloc::string::String;

fn from(variables: &[(&str, &str)]) -> LogOptions {
    LogOptions::from_environment(|name| {
        variables.iter().find(|(known, _)| *known == name).map(|(_, value)| String::from(*value))
    })
}

#[test]
#[doc(alias("LOG-34", "LOG-36"))]
fn without_variables_all_levels_are_logged() {
    assert_eq!(from(&[]), LogOptions::DEFAULT);
    assert_eq!(LogOptions::DEFAULT.document_length_max, 1000, "LOG-36");
}

#[test]
#[doc(alias = "LOG-34")]
fn variable_all_applies_to_components_without_a_variable() {
    let options = from(&[("MONGODB_LOG_CONNECTION", "Debug"), ("MONGODB_LOG_ALL", "off")]);
    let levels = (options.command, options.connection, options.topology);
    assert_eq!(levels, (LevelFilter::OFF, LevelFilter::DEBUG, LevelFilter::OFF));
    assert_eq!(options.server_selection, LevelFilter::OFF);
    assert_eq!(from(&[("MONGODB_LOG_COMMAND", "info")]).command, LevelFilter::INFO);
    assert_eq!(from(&[("MONGODB_LOG_SERVER_SELECTION", "info")]).server_selection, LevelFilter::INFO);
    let options = from(&[("MONGODB_LOG_TOPOLOGY", "ERROR")]);
    assert_eq!((options.connection, options.topology), (LevelFilter::TRACE, LevelFilter::ERROR));
    for (name, level) in [
        ("emergency", LevelFilter::ERROR),
        ("alert", LevelFilter::ERROR),
        ("critical", LevelFilter::ERROR),
        ("warn", LevelFilter::WARN),
        ("notice", LevelFilter::INFO),
        ("info", LevelFilter::INFO),
        ("trace", LevelFilter::TRACE),
    ] {
        assert_eq!(from(&[("MONGODB_LOG_ALL", name)]).connection, level, "{name}");
    }
}

#[test]
#[doc(alias = "LOG-34")]
fn invalid_settings_count_as_not_set() {
    let options = from(&[
        ("MONGODB_LOG_CONNECTION", "loud"),
        ("MONGODB_LOG_TOPOLOGY", ""),
        ("MONGODB_LOG_ALL", "info"),
        ("MONGODB_LOG_MAX_DOCUMENT_LENGTH", "-5"),
    ]);
    assert_eq!((options.connection, options.topology), (LevelFilter::INFO, LevelFilter::INFO));
    assert_eq!(options.document_length_max, 1000);
    assert_eq!(from(&[("MONGODB_LOG_MAX_DOCUMENT_LENGTH", "20")]).document_length_max, 20);
    assert_eq!(from(&[("MONGODB_LOG_MAX_DOCUMENT_LENGTH", "Unlimited")]).document_length_max, usize::MAX);
    assert_eq!(format!("{:?}", from(&[("MONGODB_LOG_ALL", "\u{0}")]).connection), "LevelFilter::TRACE");
}
