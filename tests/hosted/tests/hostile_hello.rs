//! Hello replies with names chosen by an attacker, and rows of Cassandra with types chosen by one, cost
//! about as much as honest ones of the same size.

use core::time::Duration;
use poolhouse_core::topology::{OnHeap, Topology, TopologyId, TopologyOptions, TopologyType};
use poolhouse_core::{Instant, ServerId};
use poolhouse_cql::{Outcome, OutcomeKind, Rows};
use poolhouse_smol::{Client, ClientOptions};
use poolhouse_tests::fake::{FakeOptions, FakeServer, Role, ServerState};
use poolhouse_tests::flood::{colliding, honest};
use poolhouse_tests::patience::processor_time;
use poolhouse_tests::reply;
use poolhouse_wire::hello::HelloReply;
use serde::Deserialize;

/// Names of hosts and of tags.
#[derive(Clone, Debug, Default)]
struct Lists {
    hosts: Vec<String>,
    tags: Vec<String>,
}

/// A replica set with a primary that sends one hello reply after another.
struct Set {
    topology: Topology<OnHeap>,
    server: ServerId,
}

impl Set {
    fn new() -> Self {
        let config = TopologyOptions { seeds: &["a"], ..TopologyOptions::default() }.validate().expect("valid");
        let topology = Topology::new(Instant::ORIGIN, TopologyId::new(1), config, &mut ()).expect("room for a seed");
        let server = topology.find("a").expect("the seed");
        Self { topology, server }
    }

    fn hello(&mut self, lists: &Lists) {
        let hosts: Vec<_> = core::iter::once("a").chain(lists.hosts.iter().map(String::as_str)).collect();
        let tags: Vec<_> = lists.tags.iter().map(|name| (name, "1")).collect();
        let none = [""; 0];
        let lists = reply::Lists::new(&hosts, &none, &none, &tags);
        let hello = lists.of(HelloReply {
            is_writable_primary: true,
            set_name: Some("rs"),
            max_wire_version: 21,
            ..HelloReply::OK
        });
        assert!(
            self.topology.handle_hello(Instant::ORIGIN, self.server, &hello, None, &mut ()),
            "the reply is accepted"
        );
        while self.topology.poll_action().is_some() {}
    }
}

/// The processor time of ten replies with these lists in turn.
fn cost(replies: &[Lists]) -> Duration {
    let mut set = Set::new();
    least(5, || replies.iter().cycle().take(10).for_each(|lists| set.hello(lists)))
}

/// The minimum processor time of many rounds, because other load of the machine only adds to it.
fn least(rounds: u32, mut round: impl FnMut()) -> Duration {
    let round = |_| {
        let before = processor_time();
        round();
        processor_time() - before
    };
    (0..rounds).map(round).min().expect("some rounds")
}

/// The names in two halves; each reply replaces one half by the other.
fn halves(names: &[String], list: impl Fn(Vec<String>) -> Lists) -> [Lists; 2] {
    let (one, other) = names.split_at(names.len() / 2);
    [one, other].map(|names| list(names.to_vec()))
}

#[test]
fn reply_with_chosen_names_costs_at_most_three_times_an_honest_one() {
    let tags = |tags| Lists { tags, ..Lists::default() };
    let hosts = |hosts| Lists { hosts, ..Lists::default() };
    for (what, count, list) in
        [("tags", 8_000, &tags as &dyn Fn(Vec<String>) -> Lists), ("hosts", 1_000, &hosts as &dyn Fn(_) -> _)]
    {
        let colliding = colliding(count);
        let bytes = colliding[0].len();
        let alike = |bytes: usize| (0..count).map(|number| format!("{}{number:04}", "x".repeat(bytes - 4))).collect();
        let sorted = |descends: bool| {
            let mut names = honest(count, bytes);
            names.sort_unstable();
            if descends {
                names.reverse();
            }
            names
        };
        let same = |bytes: usize| vec!["x".repeat(bytes); count];
        let chosen: [(&str, Vec<String>, usize); 6] = [
            ("of one hash", colliding, bytes),
            ("that begin alike", alike(bytes), bytes),
            ("of 240 bytes, that begin alike", alike(240), 240),
            ("in ascending order", sorted(false), bytes),
            ("in descending order", sorted(true), bytes),
            ("all the same", same(bytes), bytes),
        ];
        for (how, names, bytes) in chosen {
            let fair = cost(&halves(&honest(count, bytes), list));
            let unfair = cost(&halves(&names, list));
            println!("{what} {how}: {unfair:?} against {fair:?} for ten replies");
            assert!(unfair <= 3 * fair, "{what} {how}: {unfair:?} against {fair:?}");
        }
    }
}

/// A client, and its primary with tags that a test can change.
struct Greeted {
    server: FakeServer,
    client: Client,
}

impl Greeted {
    async fn new() -> Self {
        let server =
            FakeServer::start(FakeOptions::with_state(ServerState::default())).expect("the fake server starts");
        let address = server.address().to_string();
        server.set_state(ServerState::member(Role::Primary, "rs", &[&address], &address, Some(&address)));
        let options =
            ClientOptions::parse(&format!("mongodb://{address}/?replicaSet=rs")).expect("a valid connection string");
        let client = Client::with_options(options).expect("compatible options");
        client.run_command("admin", bson::doc! { "ping": 1 }).await.expect("the server answers");
        Self { server, client }
    }

    /// Changes the tags in the hello replies of the primary.
    fn greet(&self, names: &[String], value: u32) {
        let tags: bson::Document = names.iter().map(|name| (name.clone(), value.to_string().into())).collect();
        self.server.update_state(|state| drop(state.fields.insert("tags", tags)));
    }

    /// The number of pings that are answered within a second, with a pause of 10 ms after each,
    /// while the server changes its tags every 200 ms.
    async fn pings(&self, names: &[String], round: u32) -> u32 {
        let (begun, mut count) = (std::time::Instant::now(), 0);
        let mut said = 0;
        while begun.elapsed() < Duration::from_secs(1) {
            if begun.elapsed() >= Duration::from_millis(200) * said {
                self.greet(names, round * 100 + said);
                said += 1;
            }
            self.client.run_command("admin", bson::doc! { "ping": 1 }).await.expect("the server answers");
            count += 1;
            smol::Timer::after(Duration::from_millis(10)).await;
        }
        let topology = self.client.topology();
        let primary = topology.servers().next().expect("the primary");
        assert_eq!(topology.topology_type(), TopologyType::ReplicaSetWithPrimary);
        assert!(
            primary.tags().all(|(name, _)| names.iter().any(|known| known == name)),
            "the client has processed a reply with these tags"
        );
        assert_eq!(primary.tags().len(), 511, "tags beyond the limit are left out");
        count
    }
}

/// Rounds with honest and with chosen names alternate, so other load of the machine affects both.
#[test]
fn stream_of_replies_with_chosen_tags_does_not_delay_pings() {
    smol::block_on(async {
        let greeted = Greeted::new().await;
        let chosen = colliding(4_000);
        let fair = honest(4_000, chosen[0].len());
        let mut counts = (0, 0);
        for round in 0..5 {
            counts.0 += greeted.pings(&fair, 2 * round).await;
            counts.1 += greeted.pings(&chosen, 2 * round + 1).await;
        }
        println!("{} pings with honest names, {} with chosen ones", counts.0, counts.1);
        assert!(5 * counts.1 >= 4 * counts.0, "{} pings with honest names, {} with chosen ones", counts.0, counts.1);
        greeted.client.close().await;
    });
}

/// The notation of Cassandra's protocol for a text.
fn string(text: &str) -> Vec<u8> {
    [&u16::try_from(text.len()).expect("short").to_be_bytes(), text.as_bytes()].concat()
}

fn int(value: usize) -> [u8; 4] {
    i32::try_from(value).expect("small").to_be_bytes()
}

/// The body of a result with one column of this type, which is in all of its rows.
fn column(kind: &[u8], count: usize, cell: &[u8]) -> Vec<u8> {
    let names = [string("k"), string("t"), string("c")].concat();
    let row = [&int(cell.len())[..], cell].concat();
    [&int(1)[..], &int(1), &names, kind, &int(count), &row.repeat(count)].concat()
}

fn rows(body: &[u8]) -> Rows<'_> {
    Outcome { kind: OutcomeKind::Rows, body }.rows().expect("well-formed").expect("rows")
}

/// The description of a custom type.
fn class(text: &str) -> Vec<u8> {
    [&[0, 0][..], &string(text)].concat()
}

/// A list of user-defined values: all have the same bytes, whatever the number of fields that they lack.
#[test]
fn fields_that_values_of_cassandra_lack_are_not_walked() {
    #[derive(Deserialize)]
    struct Value {
        f0: Option<Vec<i32>>,
    }
    const VALUES: usize = 5_000;
    let list = |fields: u16, kind: &[u8]| {
        let named = (0..fields).flat_map(|field| [&string(&format!("f{field}"))[..], kind].concat());
        let fields = [&fields.to_be_bytes()[..], &named.collect::<Vec<_>>()].concat();
        [&[0, 0x20, 0, 0x30][..], &string("k"), &string("u"), &fields].concat()
    };
    let cost = |kind: &[u8]| {
        let body = column(kind, 21, &[&int(VALUES)[..], &[0; 4 * VALUES]].concat());
        let mut rows = rows(&body).deserialize::<(Vec<Value>,)>();
        let mut read = || {
            let (values,) = rows.next().expect("a row").expect("lists");
            assert!(values.len() == VALUES && values.iter().all(|value| value.f0.as_ref().is_none_or(Vec::is_empty)));
        };
        // The first one reads the description too.
        read();
        least(20, read)
    };
    // The list of the target is looked for among 4,000, in 12 steps.
    for (what, kind, most) in [("integers", &[0, 9][..], 4), ("lists", &[0, 0x20, 0, 9], 16)] {
        let (fair, unfair) = (cost(&list(1, kind)), cost(&list(4_000, kind)));
        println!("values that lack 4,000 {what}: {unfair:?} against {fair:?} for those that lack one");
        assert!(unfair <= most * fair, "values that lack {what}: {unfair:?} against {fair:?}");
    }
}

/// A type by the length of its description.
type Kind<'a> = (&'a str, &'a dyn Fn(usize) -> Vec<u8>);

#[test]
fn errors_of_values_of_cassandra_cost_the_same_for_descriptions_of_any_length() {
    const ROWS: usize = 20;
    let cost = |kind: &[u8]| {
        let body = column(kind, 1 + 10 * ROWS, &[1]);
        let mut rows = rows(&body).deserialize::<(i32,)>();
        let mut refuse = || drop(rows.next().expect("a row").expect_err("no integer"));
        refuse();
        least(10, || (0..ROWS).for_each(|_| refuse()))
    };
    let lists = [0, 0x20].repeat(30);
    let kinds: [Kind<'_>; 3] = [
        ("classes", &|length| [&lists[..], &[0, 0x31, 0, 15], &class(&"c".repeat(length)).repeat(15)].concat()),
        ("names", &|length| [&lists[..], &[0, 0x30], &string("k"), &string(&"c".repeat(length)), &[0, 0]].concat()),
        ("digits of names", &|length| class(&format!("UserType(k,{})", "61".repeat(length / 2)))),
    ];
    for (what, kind) in kinds {
        let (fair, unfair) = (cost(&kind(2_000)), cost(&kind(64_000)));
        println!("long {what}: {unfair:?} against {fair:?} for {ROWS} errors");
        assert!(unfair <= 4 * fair, "long {what}: {unfair:?} against {fair:?}");
    }
    let (fair, unfair) = (
        cost(&[&lists[..], &[0, 9]].concat()),
        cost(&class(&format!("{}UTF8Type{}", "VectorType(".repeat(30), ",1)".repeat(30)))),
    );
    assert!(unfair <= 4 * fair, "vectors of vectors: {unfair:?} against {fair:?} of lists of lists");
}

/// The texts are of one length, and eight times as long: if the cost were quadratic, it would be 64 times as
/// much.
#[test]
fn classes_of_cassandra_are_read_in_linear_time() {
    let cost = |text: &str| {
        let body = column(&class(text), 0, &[]);
        least(20, || assert_eq!(rows(&body).columns.len(), 1))
    };
    let parentheses = |open: usize, close: usize| "(".repeat(open) + &")".repeat(close);
    let texts: [(&str, &dyn Fn(usize) -> String); 5] = [
        ("parentheses that open", &|bytes| format!("x{}", parentheses(bytes, 0))),
        ("parentheses", &|bytes| format!("x{}", parentheses(bytes / 2, bytes / 2))),
        ("parentheses of a field", &|bytes| format!("UserType(k,61,61:x{})", parentheses(bytes / 2, bytes / 2))),
        ("pairs of parentheses", &|bytes| format!("x({})", "()".repeat(bytes / 2))),
        ("fields", &|bytes| format!("TupleType({}x)", "x(),".repeat(bytes / 4))),
    ];
    for (what, text) in texts {
        let (short, long) = (cost(&text(8_000)), cost(&text(64_000)));
        println!("{what}: {long:?} for 64,000 bytes, {short:?} for 8,000");
        assert!(long <= 24 * short, "{what}: {long:?} for 64,000 bytes, {short:?} for 8,000");
    }
}
