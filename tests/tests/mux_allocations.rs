//! Allocations of a warm session's request: its share of the buffer for the bodies of small replies,
//! or the body of a large one, and nothing else.
//!
//! Counted: every allocation, on any thread, that is made while a request or a task of the session
//! is polled. The futures of the requests are stored in memory that is allocated before the
//! counting begins. In addition to bodies and their buffers there are allocations of the executor's task queue, one
//! in some thirty wake-ups. Not counted: async-io's reactor, which allocates a list of wakers for
//! each of its polls, and moves its timers; that is a cost per poll, not per request. The server is
//! a separate process.

use core::future::poll_fn;
use core::pin::Pin;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use core::task::Poll;
use core::time::Duration;
use poolhouse_allocator::Counting;
use poolhouse_client::mux::{MuxOptions, Reply, RequestError, Session, SessionOptions};
use poolhouse_cql::{Consistency, Version};
use poolhouse_driver::Subscribers;
use poolhouse_smol::Smol;
use poolhouse_tests::contract::hosted::{Probe, at_work, is_at_work};
use poolhouse_tests::cql_server::{CqlServer, CqlServerOptions};
use poolhouse_tests::suite::Suite;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitCode, Stdio};

#[global_allocator]
static ALLOCATOR: Counting = Counting(note);

static ASKED: AtomicU64 = AtomicU64::new(0);
/// Allocations of exactly the size of a body.
static BODIES: AtomicU64 = AtomicU64::new(0);
static BODY_BYTES: AtomicUsize = AtomicUsize::new(0);

fn note(taken: usize, _: usize) {
    if taken > 0 && is_at_work() {
        ASKED.fetch_add(1, Ordering::Relaxed);
        BODIES.fetch_add(u64::from(taken == BODY_BYTES.load(Ordering::Relaxed)), Ordering::Relaxed);
    }
}

/// Set in the process of the server.
const SERVER: &str = "POOLHOUSE_MUX_ALLOCATIONS_SERVER";
/// Number of counted requests.
const REQUESTS: u64 = 2_000;
/// Maximum number of allocations of the executor's queue.
const BESIDES: u64 = REQUESTS / 20;
/// No step here takes longer, unless it hangs.
const LONG: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    if std::env::var_os(SERVER).is_some() {
        let server = CqlServer::start(CqlServerOptions::fast()).expect("a server");
        println!("{}", server.address());
        let mut sink = [0; 64];
        while std::io::stdin().read(&mut sink).is_ok_and(|count| count > 0) {}
        return ExitCode::SUCCESS;
    }
    // Only one case: the allocations of others would be counted.
    Suite::new("mux_allocations").case("a_request_allocates_at_most_the_body_of_its_answer", run).run()
}

fn start_server() -> (Child, String) {
    let this = std::env::current_exe().expect("this program has a path");
    let mut server = Command::new(this)
        .env(SERVER, "yes")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program runs");
    let mut address = String::new();
    BufReader::new(server.stdout.take().expect("standard output is piped"))
        .read_line(&mut address)
        .expect("the server prints its address");
    (server, address.trim().to_owned())
}

fn run() {
    let (mut server, address) = start_server();
    let before = ASKED.load(Ordering::Relaxed);
    drop(core::hint::black_box(vec![0_u8; 100]));
    assert_eq!(ASKED.load(Ordering::Relaxed), before, "an idle session allocates nothing");
    drop(at_work(|| core::hint::black_box(vec![0_u8; 100])));
    assert_eq!(ASKED.load(Ordering::Relaxed), before + 1, "the counter counts an allocation");
    for version in Version::ALL {
        for in_flight in [1, 16, 256] {
            for statement in ["bytes 100", "bytes 1000"] {
                measure(&address, version, in_flight, statement);
            }
        }
    }
    drop(server.stdin.take());
    server.wait().expect("our child");
}

/// P48: a warm request allocates its share of a buffer, or the body of a large reply; the pool below
/// it allocates nothing.
fn measure(address: &str, version: Version, in_flight: usize, text: &str) {
    let options = SessionOptions::new([address]).version(version).mux(MuxOptions::DEFAULT).request_timeout(LONG);
    let session = Session::with_platform(Probe::<Smol>::default(), options, Subscribers::default()).expect("a session");
    let request = || session.query(text).consistency(Consistency::One).send();
    let body_bytes = smol::block_on(request()).expect("a reply").body().len();
    BODY_BYTES.store(body_bytes, Ordering::Relaxed);
    let counted = || (ASKED.load(Ordering::Relaxed), BODIES.load(Ordering::Relaxed));
    let (asked, bodies) = smol::block_on(async {
        let mut flights = places(in_flight, request);
        // Now all buffers have their final size, including those that depend on the size of single
        // reads.
        fly(&mut flights, request, REQUESTS).await;
        let before = counted();
        fly(&mut flights, request, REQUESTS).await;
        let after = counted();
        (after.0 - before.0, after.1 - before.1)
    });
    println!(
        "{version}, {in_flight} in flight, {text}: {asked} allocations for {REQUESTS} requests, {bodies} of them bodies"
    );
    let (shared_max, buffer_bytes) = (512, 4096);
    let expected = if body_bytes <= shared_max {
        // A buffer, and the count of its users.
        2 * REQUESTS.div_ceil((buffer_bytes / body_bytes) as u64)
    } else {
        assert_eq!(bodies, REQUESTS, "one body for each answer");
        REQUESTS
    };
    assert!(asked <= expected + BESIDES, "{version}, {in_flight} in flight, {text}: {asked} allocations");
}

type Places<F> = Vec<Pin<Box<Option<F>>>>;

fn places<F>(count: usize, _of: impl Fn() -> F) -> Places<F> {
    (0..count).map(|_| Box::pin(None)).collect()
}

/// Performs this number of requests, with all slots of `places` in use at any time.
async fn fly<F: Future<Output = Result<Reply, RequestError>>>(
    places: &mut Places<F>,
    make: impl Fn() -> F,
    count: u64,
) {
    let (mut begun, mut ended) = (0, 0);
    poll_fn(|context| {
        for place in places.iter_mut() {
            loop {
                if place.as_ref().get_ref().is_none() {
                    if begun == count {
                        break;
                    }
                    begun += 1;
                    place.as_mut().set(Some(make()));
                }
                let Some(flight) = place.as_mut().as_pin_mut() else { break };
                match at_work(|| flight.poll(context)) {
                    Poll::Pending => break,
                    Poll::Ready(reply) => {
                        drop(reply.expect("an answer"));
                        ended += 1;
                        place.as_mut().set(None);
                    }
                }
            }
        }
        if ended == count { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
