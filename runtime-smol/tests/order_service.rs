//! The example of an order service, over HTTP, with a real mongod, given by `MONGOD`.
#![expect(clippy::unwrap_used, reason = "its functions are tests, although without the attribute")]

extern crate alloc;

#[path = "../examples/order_service/http.rs"]
mod http;
#[path = "../examples/order_service/orders.rs"]
mod orders;

use core::net::SocketAddr;
use core::time::Duration;
use orders::Orders;
use poolhouse_smol::Client;
use poolhouse_smol::bson::{Document, doc};
use poolhouse_tests::mongod::{self, FailPointMode, MongodReplicaSet};
use poolhouse_tests::suite::Suite;
use smol::channel::{Sender, bounded};
use smol::future::FutureExt as _;
use smol::io::{AsyncReadExt as _, AsyncWriteExt as _};
use smol::net::{TcpListener, TcpStream};
use smol::{Task, Timer, spawn};
use std::process::ExitCode;

/// Limit of each case and of each wait; far longer than needed.
const PATIENCE: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    Suite::new("order_service")
        .skip_if(mongod::available().err())
        .case("orders_are_inserted_once_found_and_listed", || run(1, inserted_found_and_listed))
        .case("orders_are_paid_once", || run(1, paid_once))
        .case("late_request_has_an_unknown_outcome", || run(1, late_request))
        .case("bad_requests_are_refused", || run(1, bad_requests_are_refused))
        .case("pending_request_is_answered_when_the_service_ends", || run(1, ends_in_order))
        .case("request_of_a_peer_that_goes_away_leaves_no_trace", || run(1, peer_goes_away))
        .case("no_request_fails_when_the_primary_steps_down", || run(3, primary_steps_down))
        .run()
}

/// A service, its servers, and a client that reads what it has stored.
struct Rig {
    set: MongodReplicaSet,
    address: SocketAddr,
    service: Task<()>,
    /// Dropping it ends the service.
    end: Sender<()>,
    client: Client,
}

/// Runs a case with a set of this many members. A case that hangs fails.
fn run(members: usize, case: impl AsyncFnOnce(Rig)) {
    let set = MongodReplicaSet::start(members).unwrap();
    let case = async {
        let uri = set.uri().replacen("/?", "/shop?", 1);
        let orders = Orders::open(&uri).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (end, ended) = bounded::<()>(1);
        let service = spawn(async move {
            http::serve(listener, orders.clone(), async { _ = ended.recv().await }).await;
            orders.close().await;
        });
        let client = Client::new(&uri).await.unwrap();
        case(Rig { set, address, service, end, client }).await;
    };
    let late = async {
        Timer::after(PATIENCE).await;
        panic!("the case exceeded its time limit");
    };
    smol::block_on(case.or(late));
}

/// A connection to the service.
struct Peer(TcpStream);

#[derive(Debug, PartialEq)]
struct Response {
    status: u16,
    head: String,
    body: String,
}

impl Response {
    fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

impl Peer {
    async fn connect(rig: &Rig) -> Self {
        Self(TcpStream::connect(rig.address).await.unwrap())
    }

    async fn send(&mut self, request: &str) {
        self.0.write_all(request.as_bytes()).await.unwrap();
    }

    async fn line(&mut self) -> String {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).await.unwrap();
            line.extend(byte);
        }
        String::from_utf8(line).unwrap()
    }

    async fn bytes(&mut self, length: usize) -> String {
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes).await.unwrap();
        String::from_utf8(bytes).unwrap()
    }

    async fn response(&mut self) -> Response {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            head += &self.line().await;
        }
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut body = String::new();
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        if let Some(length) = length {
            body = self.bytes(length.parse().unwrap()).await;
        } else {
            assert!(head.contains("Transfer-Encoding: chunked"), "{head}");
            loop {
                let length = usize::from_str_radix(self.line().await.trim(), 16).unwrap();
                body += &self.bytes(length).await;
                assert_eq!(self.line().await, "\r\n");
                if length == 0 {
                    break;
                }
            }
        }
        Response { status, head, body }
    }

    async fn get(&mut self, path: &str) -> Response {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        self.response().await
    }

    async fn begin_post(&mut self, path: &str, body: &str) {
        let length = body.len();
        self.send(&format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}")).await;
    }

    async fn post(&mut self, path: &str, body: &str) -> Response {
        self.begin_post(path, body).await;
        self.response().await
    }

    async fn insert(&mut self, number: &str, customer: &str) -> Response {
        self.post("/orders", &order(number, customer)).await
    }

    /// Waits until the service closes the connection.
    async fn closed(&mut self) {
        let mut rest = Vec::new();
        // A reset is an end too: the service does not read the rest of a request that it refuses.
        let _: Result<usize, std::io::Error> = self.0.read_to_end(&mut rest).await;
        assert!(rest.is_empty(), "{rest:?}");
    }
}

fn order(number: &str, customer: &str) -> String {
    format!(r#"{{"number":"{number}","customer":"{customer}","amount_cents":1250,"what":"tea","paid":true}}"#)
}

async fn count(client: &Client, collection: &str, query: Document) -> i32 {
    let count = doc! { "count": collection, "query": query };
    client.run_command("shop", count).await.unwrap().get_i32("n").unwrap()
}

impl Rig {
    /// Blocks the next insert of the service. Returns how many inserts the fail point will then have blocked.
    fn block_insert(&self, time: Duration) -> i64 {
        let time_ms = i64::try_from(time.as_millis()).unwrap();
        let data = doc! { "failCommands": ["insert"], "appName": "order_service", "blockConnection": true, "blockTimeMS": time_ms };
        let command = doc! { "configureFailPoint": "failCommand", "mode": { "times": 1 }, "data": data };
        let reply = self.set.member(0).run_command(command).unwrap();
        let count = reply.get("count").unwrap();
        count.as_i64().or_else(|| count.as_i32().map(i64::from)).unwrap() + 1
    }

    /// Waits until the fail point has blocked so many inserts: the last one has reached the server.
    async fn insert_arrived(&self, count: i64) {
        let limit_ms = i64::try_from(PATIENCE.as_millis()).unwrap();
        let wait = doc! { "waitForFailPoint": "failCommand", "timesEntered": count, "maxTimeMS": limit_ms };
        self.client.run_command("admin", wait).await.unwrap();
    }
}

async fn inserted_found_and_listed(rig: Rig) {
    let mut peer = Peer::connect(&rig).await;
    let created = peer.insert("A-1", "ada").await;
    assert_eq!((created.status, created.json()["number"].as_str()), (201, Some("A-1")));
    assert_eq!(peer.insert("A-1", "eve").await.status, 409);

    let found = peer.get("/orders/A-1").await;
    let expected =
        serde_json::json!({ "number": "A-1", "customer": "ada", "amount_cents": 1250, "what": "tea", "paid": false });
    assert_eq!((found.status, found.json()), (200, expected));
    assert_eq!(peer.get("/orders/A-2").await.status, 404);
    // A name with a blank, a sign of its own, and more than two batches.
    for number in 0..250 {
        assert_eq!(peer.insert(&format!("B/{number}"), "bob & co").await.status, 201);
    }
    assert_eq!(peer.get("/orders/B%2F7").await.json()["customer"], "bob & co");
    let listed = peer.get("/orders?customer=bob+%26%20co").await;
    assert_eq!(listed.status, 200);
    let mut numbers: Vec<String> = listed
        .body
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["number"].as_str().unwrap().to_owned())
        .collect();
    numbers.sort();
    numbers.dedup();
    assert_eq!(numbers.len(), 250);
    assert_eq!(listed.body.lines().count(), 250);
    let nothing = peer.get("/orders?customer=eve").await;
    assert_eq!((nothing.status, nothing.body.as_str()), (200, ""));

    let health = peer.get("/health").await;
    assert_eq!((health.status, health.json()["writable"].as_bool()), (200, Some(true)));
    assert_eq!(health.json()["servers"][0]["address"], rig.set.member(0).address().to_string());
}

async fn paid_once(rig: Rig) {
    let mut peer = Peer::connect(&rig).await;
    assert_eq!(peer.insert("A-1", "ada").await.status, 201);
    assert_eq!(peer.post("/orders/A-2/pay", "").await.status, 404);
    assert_eq!(count(&rig.client, "payments", doc! {}).await, 0);
    // At once: all but one conflict with it, and then find the order paid.
    let tasks: Vec<_> = (0..8).map(|_| Peer::connect(&rig)).collect();
    let mut peers = Vec::new();
    for task in tasks {
        peers.push(task.await);
    }
    let tasks: Vec<_> =
        peers.into_iter().map(|mut peer| spawn(async move { peer.post("/orders/A-1/pay", "").await.status })).collect();
    let mut statuses = Vec::new();
    for task in tasks {
        statuses.push(task.await);
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409, 409, 409, 409, 409, 409, 409]);
    assert_eq!(count(&rig.client, "payments", doc! { "number": "A-1", "amount_cents": 1250_i64 }).await, 1);
    assert_eq!(count(&rig.client, "payments", doc! {}).await, 1);
    assert_eq!(peer.get("/orders/A-1").await.json()["paid"], true);
    // A payment that cannot be recorded leaves the order as it was.
    assert_eq!(peer.insert("A-3", "ada").await.status, 201);
    let refused = doc! { "failCommands": ["insert"], "appName": "order_service", "errorCode": 13 };
    rig.set.member(0).fail_command(FailPointMode::Times(1), refused).unwrap();
    let failed = peer.post("/orders/A-3/pay", "").await;
    assert_eq!((failed.status, failed.json()["error"].as_str()), (500, Some("the database failed")));
    assert_eq!(peer.get("/orders/A-3").await.json()["paid"], false);
    assert_eq!(peer.post("/orders/A-3/pay", "").await.status, 200);
    // The order is not changed by a payment that is refused.
    assert_eq!(peer.post("/orders/A-3/pay", "").await.status, 409);
    assert_eq!(count(&rig.client, "payments", doc! { "number": "A-3" }).await, 1);
}

/// The server replies that it had too little time, which leaves open whether it has executed the insert.
async fn late_request(rig: Rig) {
    let mut peer = Peer::connect(&rig).await;
    let late = doc! { "failCommands": ["insert"], "appName": "order_service", "errorCode": 50 };
    rig.set.member(0).fail_command(FailPointMode::Times(1), late).unwrap();
    let response = peer.insert("A-1", "ada").await;
    assert_eq!(response.status, 503);
    let error = response.json()["error"].as_str().unwrap().to_owned();
    assert!(error.contains("not known whether"), "{error}");
    assert_eq!(peer.insert("A-1", "ada").await.status, 201);
}

async fn bad_requests_are_refused(rig: Rig) {
    let mut peer = Peer::connect(&rig).await;
    for body in ["", "{", "[]", r#"{"number":"A-1"}"#, r#"{"number":1,"customer":"ada","amount_cents":1}"#] {
        assert_eq!(peer.post("/orders", body).await.status, 400, "{body}");
    }
    let deep = "[".repeat(60_000);
    assert_eq!(peer.post("/orders", &deep).await.status, 400);
    for (path, status) in [("/", 404), ("/orders/", 404), ("/orders", 400), ("/orders/A-1/pay", 405), ("/a/b/c/d", 404)]
    {
        assert_eq!(peer.get(path).await.status, status, "{path}");
    }
    // After these the service cannot find the next request, so it closes the connection.
    let long_path = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(20_000));
    let many_headers = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(100));
    for request in [
        "GET / HTTP/1.0\r\n\r\n",
        "\0\r\n\r\n",
        "GET orders HTTP/1.1\r\n\r\n",
        "GET /%f HTTP/1.1\r\n\r\n",
        "GET /%ff HTTP/1.1\r\n\r\n",
        "POST /orders HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "POST /orders HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        "POST /orders HTTP/1.1\r\nContent-Length: +1\r\n\r\n1",
        "POST /orders HTTP/1.1\r\nContent-Length:\r\n\r\n",
        "POST /orders HTTP/1.1\r\nContent-Length: 18446744073709551615\r\n\r\n",
        "POST /orders HTTP/1.1\r\nContent-Length: 18446744073709551616\r\n\r\n",
        "POST /orders HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        &many_headers,
        &long_path,
    ] {
        let mut peer = Peer::connect(&rig).await;
        peer.send(request).await;
        let response = peer.response().await;
        assert_eq!(response.status, 400, "{:.80}", request);
        assert!(response.head.contains("Connection: close"), "{}", response.head);
        peer.closed().await;
    }
    // The peer expects no body, so nothing may follow it on the connection.
    let mut head = Peer::connect(&rig).await;
    head.send("HEAD /health HTTP/1.1\r\n\r\n").await;
    let response = head.response().await;
    assert!(response.status == 405 && response.head.contains("Connection: close"), "{response:?}");
    head.closed().await;
    // Half a request.
    let mut half = Peer::connect(&rig).await;
    half.send("POST /orders HTTP/1.1\r\nContent-Length: 5\r\n\r\n{").await;
    drop(half);
    assert_eq!(peer.get("/health").await.status, 200);
    assert_eq!(count(&rig.client, "orders", doc! {}).await, 0);
}

async fn ends_in_order(rig: Rig) {
    let mut idle = Peer::connect(&rig).await;
    assert_eq!(idle.get("/health").await.status, 200);
    let mut pending = Peer::connect(&rig).await;
    let blocked = rig.block_insert(Duration::from_millis(500));
    pending.begin_post("/orders", &order("A-1", "ada")).await;
    rig.insert_arrived(blocked).await;
    drop(rig.end);
    idle.closed().await;
    let response = pending.response().await;
    assert_eq!(response.status, 201);
    assert!(response.head.contains("Connection: close"), "{}", response.head);
    pending.closed().await;
    rig.service.await;
    assert!(TcpStream::connect(rig.address).await.is_err());
    assert_eq!(count(&rig.client, "orders", doc! {}).await, 1);
}

async fn peer_goes_away(rig: Rig) {
    let mut gone = Peer::connect(&rig).await;
    let blocked = rig.block_insert(Duration::from_millis(200));
    gone.begin_post("/orders", &order("A-1", "ada")).await;
    rig.insert_arrived(blocked).await;
    drop(gone);
    // The insert is executed, since the service has received the request.
    let mut peer = Peer::connect(&rig).await;
    while peer.get("/orders/A-1").await.status != 200 {
        Timer::after(Duration::from_millis(5)).await;
    }
    assert_eq!(peer.insert("A-1", "ada").await.status, 409);
    drop(rig.end);
    rig.service.await;
}

async fn primary_steps_down(rig: Rig) {
    let tasks: Vec<_> = (0..8)
        .map(|worker| {
            let address = rig.address;
            let (stop, stopped) = bounded::<()>(1);
            let task = spawn(async move {
                let mut peer = Peer(TcpStream::connect(address).await.unwrap());
                let mut count = 0;
                while !stopped.is_closed() {
                    let response = peer.insert(&format!("{worker}-{count}"), "ada").await;
                    assert_eq!(response.status, 201, "{response:?}");
                    count += 1;
                }
                count
            });
            (stop, task)
        })
        .collect();
    let set = rig.set;
    let set = smol::unblock(move || {
        let old = set.step_down(5).unwrap();
        set.wait_for_other_primary(old, PATIENCE).unwrap();
        set
    })
    .await;
    let mut sent = 0;
    for (stop, task) in tasks {
        drop(stop);
        sent += task.await;
    }
    assert_eq!(count(&rig.client, "orders", doc! {}).await, sent);
    drop(set);
}
