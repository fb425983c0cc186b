use super::*;
use crate::state::{CASSANDRA, DemoState, Kind, Resized, Sample, Server};

fn asked(head: &str) -> Result<Route, Refusal> {
    route(head.as_bytes(), 8080)
}

const HOST: &str = "Host: 127.0.0.1:8080\r\n";

#[test]
fn requests_of_the_page_are_answered() {
    assert!(matches!(asked(&format!("GET / HTTP/1.1\r\n{HOST}\r\n")), Ok(Route::File { .. })));
    assert_eq!(asked("GET /states HTTP/1.1\r\nhost: localhost:8080\r\n\r\n"), Ok(Route::States));
    let post = format!("POST /failover HTTP/1.1\r\n{HOST}Origin: http://127.0.0.1:8080\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(asked(&post), Ok(Route::Command(Command::FailOver)));
    assert_eq!(asked(&format!("POST /freeze HTTP/1.1\r\n{HOST}\r\n")), Ok(Route::Command(Command::Freeze)));
}

#[test]
fn default_port_is_not_part_of_a_host() {
    let head = b"POST /freeze HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n\r\n";
    assert_eq!(route(head, 80), Ok(Route::Command(Command::Freeze)));
    assert_eq!(route(head, 8080), Err(Refusal::Forbidden));
}

#[test]
fn hostile_requests_are_refused() {
    let many = "X: y\r\n".repeat(FIELDS_MAX + 1);
    for (head, refusal) in [
        ("\0\u{1}\r\n\r\n".to_owned(), Refusal::BadRequest),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), Refusal::BadRequest),
        (format!("GET / HTTP/1.1\r\n{HOST}{HOST}\r\n"), Refusal::BadRequest),
        (format!("GET / HTTP/1.1\r\n{HOST}{many}\r\n"), Refusal::HeadTooLarge),
        ("GET / HTTP/1.1\r\nHost: rebound.example:8080\r\n\r\n".to_owned(), Refusal::Forbidden),
        ("GET / HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n".to_owned(), Refusal::Forbidden),
        (format!("POST /failover HTTP/1.1\r\n{HOST}Origin: http://other.example\r\n\r\n"), Refusal::Forbidden),
        (format!("POST /failover HTTP/1.1\r\n{HOST}Origin: null\r\n\r\n"), Refusal::Forbidden),
        (format!("GET /states HTTP/1.1\r\n{HOST}Sec-Fetch-Site: cross-site\r\n\r\n"), Refusal::Forbidden),
        (format!("POST /failover HTTP/1.1\r\n{HOST}Content-Length: 5\r\n\r\n"), Refusal::BodyTooLarge),
        (format!("POST /failover HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n"), Refusal::BodyTooLarge),
        (format!("GET /failover HTTP/1.1\r\n{HOST}\r\n"), Refusal::MethodNotAllowed),
        (format!("GET /../etc/passwd HTTP/1.1\r\n{HOST}\r\n"), Refusal::NotFound),
    ] {
        assert_eq!(asked(&head), Err(refusal), "{head:?}");
    }
}

#[test]
fn state_is_written_as_the_page_reads_it() {
    let mut state = State {
        time: Duration::from_millis(1500),
        demo: Some(DemoState { frozen: Some("\"<b>\n".to_owned()), commands: ["f".to_owned(), "z".to_owned()] }),
        ..State::default()
    };
    state.add_event(Duration::ZERO, Kind::Primary, "first".to_owned());
    state.add_sample(Sample::default());
    state.add_event(Duration::from_secs(1), Kind::Primary, "</script>\u{2028}".to_owned());
    state.add_sample(Sample { rate: 7, p50_us: 1, p99_us: 2, failover: false });
    let written = json(&state).to_string();
    // A message of server-sent events is one line.
    assert!(!written.contains('\n'), "{written}");
    let read: Value = serde_json::from_str(&written).expect("it is JSON");
    assert_eq!(read["frozen"], "\"<b>\n");
    assert_eq!((&read["commands"], &read["connections"]), (&json!(["f", "z"]), &Value::Null));
    let counts = json!(["in use", "idle", "establishing", "waiting"]);
    assert_eq!(read["titles"], json!({ "type": "type", "detail": "RTT", "bar": "pool", "counts": counts }));
    assert_eq!(
        read["samples"],
        json!([
            { "rate": 0, "p50": 0, "p99": 0, "failover": false },
            { "rate": 7, "p50": 1, "p99": 2, "failover": true },
        ])
    );
    assert_eq!(
        (&read["events"][1]["kind"], &read["events"][1]["text"]),
        (&json!("primary"), &json!("</script>\u{2028}"))
    );
}

#[test]
fn hosts_are_written_as_the_page_reads_them() {
    let host = Server {
        address: "127.0.0.1:9042".to_owned(),
        kind: "down dc1".to_owned(),
        health: Health::Out,
        detail: None,
        counts: vec![0, 1, 2, 0, 1, 0],
        bar_max: 16,
    };
    let resized = Some(Resized { opened: 1, ..Resized::default() });
    let read = json(&State { words: &CASSANDRA, resized, servers: vec![host], ..State::default() });
    assert_eq!((&read["commands"], &read["titles"]["detail"]), (&Value::Null, &Value::Null));
    assert_eq!(
        read["servers"],
        json!([{
            "address": "127.0.0.1:9042", "type": "down dc1", "out": true, "detail": null,
            "counts": [0, 1, 2, 0, 1, 0], "max": 16,
        }])
    );
    assert_eq!(read["titles"]["counts"].as_array().map(Vec::len), Some(6));
    assert_eq!(read["other"], json!([0, "cancelled"]));
    assert!(read["connections"].as_str().is_some_and(|text| text.starts_with("1 opened, ")), "{read}");
}
