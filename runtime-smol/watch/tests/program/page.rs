use crate::program::browser::Browser;
use crate::watch;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout};

/// The longest time from an event to the page that shows it.
const SHOWN_MS_MAX: i64 = 1000;

/// The program with its page, ended when dropped.
struct Watch {
    child: Child,
    url: String,
    _output: BufReader<ChildStdout>,
}

impl Watch {
    /// - `more`: arguments.
    fn start(more: &[&str]) -> Self {
        let mut child = watch(&[&["--serve", "--seconds", "600"], more].concat()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let url = line.trim_end().strip_prefix("The page is at ").unwrap().to_owned();
        Self { child, url, _output: output }
    }

    /// Sends a request, with HOST as the page's host. Returns the first line of the reply.
    fn ask(&self, request: &str) -> String {
        let host = self.url.strip_prefix("http://").unwrap().trim_end_matches('/');
        let mut stream = TcpStream::connect(host).unwrap();
        stream.write_all(request.replace("HOST", host).as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(stream.take(1000)).read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn hostile_requests() {
    let program = Watch::start(&["--calm", "--tasks", "16"]);
    let long = format!("GET / HTTP/1.1\r\nX: {}", "y".repeat(8300));
    for (request, status) in [
        ("GET / HTTP/1.1\r\nHost: HOST\r\n\r\n", "HTTP/1.1 200 OK"),
        ("\u{1}\r\n\r\n", "HTTP/1.1 400 Bad Request"),
        ("GET / HTTP/1.1\r\nHost: rebound.example\r\n\r\n", "HTTP/1.1 403 Forbidden"),
        ("POST /failover HTTP/1.1\r\nHost: HOST\r\nOrigin: http://a.example\r\n\r\n", "HTTP/1.1 403 Forbidden"),
        ("GET /x HTTP/1.1\r\nHost: HOST\r\n\r\n", "HTTP/1.1 404 Not Found"),
        (long.as_str(), "HTTP/1.1 431 Request Header Fields Too Large"),
        ("POST /freeze HTTP/1.1\r\nHost: HOST\r\n\r\n", "HTTP/1.1 202 Accepted"),
        ("GET /states HTTP/1.1\r\nHost: HOST\r\n\r\n", "HTTP/1.1 200 OK"),
    ] {
        assert_eq!(program.ask(request), status, "{:.80}", request);
    }
}

/// Returns a program that waits until this expression is true, checked after every change of the
/// page, and then returns the other one.
fn when(condition: &str, value: &str) -> String {
    format!(
        "new Promise((resolve, reject) => {{
            const check = () => {{
                if (!({condition})) return;
                observer.disconnect();
                resolve({value});
            }};
            const observer = new MutationObserver(check);
            observer.observe(document, {{ subtree: true, childList: true, characterData: true, attributes: true }});
            setTimeout(() => reject(new Error(document.body.innerText)), 60000);
            check();
        }})"
    )
}

const PRIMARY: &str = "document.querySelector('#servers [data-type=RSPrimary]')?.dataset.address";

pub(crate) fn in_a_browser(program: &Path) {
    let watch = Watch::start(&["--calm", "--tasks", "16"]);
    let mut browser = Browser::open(program, &watch.url);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let number = |value: &Value| value.as_i64().unwrap();

    // The pools: three servers, one of which is the primary with connections in use; the charts.
    let ready = "document.querySelectorAll('#servers tr').length === 3 \
        && Number(document.querySelector('#servers .primary .use')?.getAttribute('width')) > 0 \
        && document.querySelectorAll('polyline').length === 3 \
        && document.getElementById('rate').textContent.endsWith('/s')";
    let old = text(&browser.evaluate(&when(ready, PRIMARY)));

    // The failover: another primary, and the event.
    browser.evaluate("window.clicked = Date.now(); document.getElementById('failover').click()");
    let events = "[...document.querySelectorAll('#events [data-kind=primary]')]";
    let condition =
        format!("{PRIMARY} && {PRIMARY} !== '{old}' && {events}.some((one) => one.dataset.ms >= window.clicked)");
    let value = format!(
        "({{ primary: {PRIMARY}, at: Number({events}[0].dataset.ms), shown: Date.now(), clicked: window.clicked }})"
    );
    let shown = browser.evaluate(&when(&condition, &value));
    let (event, page) = (number(&shown["at"]), number(&shown["shown"]));
    println!(
        "watch: {} ms from the event to the page, {} ms from the click",
        page - event,
        page - number(&shown["clicked"])
    );
    assert!((0..=SHOWN_MS_MAX).contains(&(page - event)), "{shown}");

    // A frozen member, and its end.
    let new = text(&shown["primary"]);
    browser.evaluate("document.getElementById('freeze').click()");
    let frozen = format!("document.querySelector('#servers .out')?.dataset.address === '{new}'");
    let label = "document.getElementById('freeze').textContent";
    assert_eq!(text(&browser.evaluate(&when(&frozen, label))), format!("Thaw {new}"));
    browser.evaluate("document.getElementById('freeze').click()");
    browser.evaluate(&when(&format!("{label} === 'Freeze the primary'"), "true"));
}

pub(crate) fn hosts(program: &Path) {
    let watch = Watch::start(&["--cassandra"]);
    let mut browser = Browser::open(program, &watch.url);
    let ready = "document.querySelectorAll('#servers tr').length === 3 \
        && document.querySelectorAll('#titles th').length === 9 \
        && Number(document.querySelector('#servers .use')?.getAttribute('width')) > 0 \
        && /[1-9][0-9]* of them for load/.test(document.getElementById('totals').textContent)";
    let label = "document.getElementById('failover').textContent";
    let kill = browser.evaluate(&when(ready, label));
    let address = kill.as_str().unwrap().strip_prefix("Kill ").unwrap();
    browser.evaluate("document.getElementById('failover').click()");
    let down = format!("document.querySelector('#servers .out')?.dataset.address === '{address}'");
    assert_eq!(browser.evaluate(&when(&down, label)), format!("Restart {address}"));
    browser.evaluate("document.getElementById('failover').click()");
    browser.evaluate(&when("document.querySelector('#servers .out') === null", "true"));
}
