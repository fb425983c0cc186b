use super::*;
use crate::ConfigError;

/// MON-58, MON-60, MON-64.
#[test]
#[doc(alias("MON-58", "MON-60", "MON-64"))]
fn the_defaults_are_those_of_clients_with_one_thread() {
    let ScanOptions { heartbeat_frequency, server_selection_try_once, server_selection_timeout, .. } =
        ScanOptions::default();
    assert_eq!(heartbeat_frequency, Duration::from_secs(60));
    assert!(server_selection_try_once);
    assert_eq!(server_selection_timeout, Duration::from_secs(30));
    assert_eq!(COOLDOWN, Duration::from_millis(5_000));
    assert_eq!(SOCKET_CHECK_INTERVAL, Duration::from_millis(5_000));
}

#[test]
fn options_out_of_range_are_refused_by_name() {
    let short = ScanOptions { heartbeat_frequency: Duration::from_millis(499), ..ScanOptions::DEFAULT };
    assert_eq!(short.validate(), Err(ConfigError::new("heartbeatFrequencyMS", 499, "be at least 500")));
    let longest = Duration::from_millis((1 << 31) - 1);
    let all = ScanOptions {
        heartbeat_frequency: longest,
        connect_timeout: Some(longest),
        server_selection_timeout: longest,
        ..ScanOptions::DEFAULT
    };
    assert!(all.validate().is_ok());
    let shortest = ScanOptions { heartbeat_frequency: Duration::from_millis(500), ..ScanOptions::DEFAULT };
    assert!(shortest.validate().is_ok());
    let beyond = Duration::from_millis(1 << 31);
    let long = |options: ScanOptions| options.validate().expect_err("too long").option();
    assert_eq!(long(ScanOptions { heartbeat_frequency: beyond, ..ScanOptions::DEFAULT }), "heartbeatFrequencyMS");
    assert_eq!(long(ScanOptions { connect_timeout: Some(beyond), ..ScanOptions::DEFAULT }), "connectTimeoutMS");
    let selection = ScanOptions { server_selection_timeout: beyond, ..ScanOptions::DEFAULT };
    assert_eq!(long(selection), "serverSelectionTimeoutMS");
}
