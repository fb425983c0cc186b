//! Texts of events and options.

use super::*;
use crate::monitor::HeartbeatId;
use alloc::string::ToString;

#[test]
fn every_event_is_displayed_on_one_line() {
    let id = HeartbeatId { server: ServerId::new(7), connection: 1, server_connection: None };
    let duration = Duration::from_micros(1500);
    let lines = [
        (MonitorEvent::HeartbeatStarted { id, awaited: true }, "ServerHeartbeatStarted awaited=true"),
        (
            MonitorEvent::HeartbeatSucceeded { id, awaited: false, duration },
            "ServerHeartbeatSucceeded awaited=false after 1.5ms",
        ),
        (
            MonitorEvent::HeartbeatFailed { id, awaited: true, duration, cause: Cause::Network },
            "ServerHeartbeatFailed awaited=true after 1.5ms: network error",
        ),
    ];
    for (event, line) in lines {
        assert_eq!(event.to_string(), line);
        assert_eq!((event.id(), event.awaited()), (&id, line.contains("awaited=true")));
    }
}

#[test]
#[doc(alias = "MON-01")]
fn modes_have_the_names_of_the_specification_and_auto_is_the_default() {
    use ServerMonitoringMode::{Auto, Poll, Stream};
    assert_eq!(MonitorOptions::DEFAULT.server_monitoring_mode, Auto);
    assert_eq!([Auto, Stream, Poll].map(|mode| mode.to_string()), ["auto", "stream", "poll"]);
}

#[test]
fn monitor_returns_its_options_and_state() {
    let mut rig = Rig::polling();
    assert_eq!(rig.monitor.config().options().server_monitoring_mode, ServerMonitoringMode::Poll);
    assert_eq!(rig.monitor.state(), MonitorState::New);
    let conn = rig.connect();
    assert_eq!(rig.monitor.state(), MonitorState::Checking);
    rig.reply(conn, &VERSIONED).expect("current");
    assert_eq!(rig.monitor.state(), MonitorState::Ended);
    rig.settle();
    assert_eq!(rig.monitor.state(), MonitorState::Waiting);
}
