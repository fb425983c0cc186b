//! A device that measures all the time, and is often asleep or offline: readings wait in a queue, and
//! each reading that the queue has accepted is stored once.
//!
//! First it sleeps several times: it sends what it has, closes the client, waits, and opens the client again.
//! Then it stays awake until the queue has accepted the plan's number of further readings. Exit status 0 means
//! that all readings were acknowledged in time and every connection was closed.

use super::{DEVICES, Demo, SPAWNED, begin, fail, measure};
use core::cell::Cell;
use embassy_executor::Spawner;
use embassy_net::Stack;
use embassy_time::{Duration, Ticker, Timer, with_timeout};
use poolhouse_board::{executor, host, println, stack};
use poolhouse_embassy::poolhouse_wire::SliceSink;
use poolhouse_embassy::{Client, DocumentWriter, Layout as _, PushError, RawDocument, WhenFull, WriteQueue};
use static_cell::StaticCell;

use super::plan::Plan;
use super::typed::Reading;

/// The memory of some 25 readings.
type Queue = WriteQueue<2048>;

const DATABASE: &str = "demo";
const COLLECTION: &str = "telemetry";

/// Readings that the queue has accepted, and those after which no further one is taken.
struct Readings {
    accepted: Cell<u32>,
    last: Cell<u32>,
}

/// Takes a reading in each period, until the queue has accepted the last one.
#[embassy_executor::task]
async fn measure_all(queue: &'static Queue, plan: &'static Plan, readings: &'static Readings) {
    let Readings { accepted, last } = readings;
    let mut ticker = Ticker::every(Duration::from_millis(plan.period_ms));
    let mut is_full = false;
    while accepted.get() < last.get() {
        ticker.next().await;
        let reading = measure(DEVICES[0], i64::from(accepted.get()));
        let mut buffer = [0; 128];
        match queue.push(encode(&reading, &mut buffer), WhenFull::Refuse) {
            Ok(()) => {
                accepted.set(accepted.get() + 1);
                is_full = false;
            }
            Err(PushError::Full) => {
                if !is_full {
                    println!("the queue is full: {:?}", queue.counts());
                }
                is_full = true;
            }
            Err(error) => fail(&error),
        }
    }
}

fn encode<'b>(reading: &Reading<'_>, buffer: &'b mut [u8]) -> RawDocument<'b> {
    let mut sink = SliceSink::new(buffer);
    if let Err(error) = DocumentWriter::write(&mut sink, |document| reading.write(document)) {
        fail(&error);
    }
    match RawDocument::new(sink.into_written()) {
        Ok(document) => document,
        Err(error) => fail(&error),
    }
}

/// Sends readings as long as the client is open.
#[embassy_executor::task]
async fn send(queue: &'static Queue, client: Client<Demo>) {
    let end = queue.run(&client, DATABASE, COLLECTION).await;
    println!("sender: {end}");
}

#[embassy_executor::task]
pub(crate) async fn live(spawner: Spawner, network: Stack<'static>, plan: &'static Plan) {
    static QUEUE: StaticCell<Queue> = StaticCell::new();
    static READINGS: StaticCell<Readings> = StaticCell::new();
    let queue: &'static Queue = QUEUE.init_with(WriteQueue::new);
    let readings: &'static Readings = READINGS.init(Readings { accepted: Cell::new(0), last: Cell::new(u32::MAX) });
    let limit = Duration::from_secs(plan.limit_s);
    let done = with_timeout(limit, work(spawner, network, plan, queue, readings)).await.is_ok();
    println!(
        "sent {}, accepted {}, {:?}, wake-ups {}, stack {} bytes",
        queue.counts().inserted,
        readings.accepted.get(),
        queue.counts(),
        executor::wakeups(),
        stack::used_bytes(),
    );
    println!("{}", if done { "done" } else { "failed: out of time" });
    host::exit(u8::from(!done))
}

async fn work(
    spawner: Spawner,
    network: Stack<'static>,
    plan: &'static Plan,
    queue: &'static Queue,
    readings: &'static Readings,
) {
    spawner.spawn(measure_all(queue, plan, readings).expect(SPAWNED));
    let client = begin(spawner, network, plan).await;
    for sleep in 1..=plan.sleeps {
        while let Err(error) = queue.flush(&client, DATABASE, COLLECTION).await {
            println!("flush: {error}");
            Timer::after_millis(200).await;
        }
        client.close();
        client.closed().await;
        println!(
            "asleep {sleep}, {:?}, {} of {} sockets are free",
            queue.counts(),
            client.core().runtime().free_sockets(),
            Demo::SOCKETS
        );
        Timer::after_millis(plan.asleep_ms).await;
        if let Err(error) = client.open() {
            fail(&error);
        }
    }
    spawner.spawn(send(queue, client).expect(SPAWNED));
    readings.last.set(readings.accepted.get() + plan.documents);
    while readings.accepted.get() < readings.last.get() || queue.counts().queued > 0 {
        Timer::after_millis(20).await;
    }
    client.close();
    client.closed().await;
}
