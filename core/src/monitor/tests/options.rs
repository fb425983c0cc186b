use super::*;
use crate::ConfigError;

/// MON-23.
#[test]
#[doc(alias("MON-01", "MON-23"))]
fn defaults_are_ten_seconds_and_auto() {
    let options = MonitorOptions::default();
    assert_eq!(options.heartbeat_frequency, Duration::from_secs(10));
    assert_eq!(options.connect_timeout, Some(Duration::from_secs(10)));
    assert_eq!(options.server_monitoring_mode, ServerMonitoringMode::Auto, "MON-01");
    assert!(!options.is_faas);
    assert!(!options.server_api);
    assert_eq!(options.validate().map(|config| *config.options()), Ok(options));
}

/// MON-24.
#[test]
#[doc(alias = "MON-24")]
fn heartbeat_frequency_below_500_ms_is_refused_with_name_value_and_rule() {
    use core::fmt::Write as _;
    for (frequency, value) in [(ms(100), 100), (ms(0), 0), (Duration::from_micros(499_999), 499)] {
        let error = MonitorOptions { heartbeat_frequency: frequency, ..MonitorOptions::DEFAULT }.validate();
        let error = error.expect_err("too short");
        assert_eq!((error.option(), error.value(), error.rule()), ("heartbeatFrequencyMS", value, "be at least 500"));
    }
    let error = MonitorOptions { heartbeat_frequency: ms(100), ..MonitorOptions::DEFAULT }.validate();
    let mut text = heapless::String::<64>::new();
    write!(text, "{}", error.expect_err("too short")).expect("fits");
    assert_eq!(text.as_str(), "heartbeatFrequencyMS is 100, but must be at least 500");
}

/// MON-24.
#[test]
#[doc(alias = "MON-24")]
fn heartbeat_frequency_of_500_ms_is_accepted() {
    const CONFIG: Result<MonitorConfig, ConfigError> =
        MonitorOptions { heartbeat_frequency: ms(500), ..MonitorOptions::DEFAULT }.validate();
    assert_eq!(CONFIG.map(|config| config.options().heartbeat_frequency), Ok(ms(500)));
}

#[test]
fn times_beyond_32_bits_of_milliseconds_are_refused() {
    let longest = ms(2_147_483_647);
    let options =
        MonitorOptions { heartbeat_frequency: longest, connect_timeout: Some(longest), ..MonitorOptions::DEFAULT };
    assert!(options.validate().is_ok());
    let error = MonitorOptions { heartbeat_frequency: Duration::MAX, ..options }.validate().expect_err("too long");
    assert_eq!((error.option(), error.value()), ("heartbeatFrequencyMS", u64::MAX));
    let error = MonitorOptions { connect_timeout: Some(longest + ms(1)), ..options }.validate().expect_err("too long");
    assert_eq!((error.option(), error.value()), ("connectTimeoutMS", 2_147_483_648));
}

#[test]
fn connect_timeout_of_zero_is_no_limit() {
    let config = MonitorOptions { connect_timeout: Some(ms(0)), ..MonitorOptions::DEFAULT }.validate().expect("valid");
    assert_eq!(config.options().connect_timeout, None);
}

/// MON-01, MON-02, MON-03, MON-04.
#[test]
#[doc(alias("MON-01", "MON-02", "MON-03", "MON-04"))]
fn mode_and_faas_decide_whether_streaming_is_enabled() {
    use ServerMonitoringMode::{Auto, Poll, Stream};
    let table = [
        (Auto, false, true),
        (Auto, true, false),
        (Stream, false, true),
        (Stream, true, true),
        (Poll, false, false),
        (Poll, true, false),
    ];
    for (server_monitoring_mode, is_faas, enabled) in table {
        let options = MonitorOptions { server_monitoring_mode, is_faas, ..MonitorOptions::DEFAULT };
        let config = options.validate().expect("valid");
        assert_eq!(config.streaming_enabled(), enabled, "{server_monitoring_mode} faas={is_faas}");
    }
    assert_eq!([Auto.name(), Stream.name(), Poll.name()], ["auto", "stream", "poll"]);
}
