//! Access control of the fake server: users, and the server side of SCRAM and PLAIN.
//!
//! Sections to read first: RFC 5802, "SCRAM Authentication Exchange"; Authentication, "Speculative
//! Authentication".

#[cfg_attr(not(feature = "scram"), path = "auth/no_hash.rs")]
pub(super) mod hash;

use alloc::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};

use self::hash::Hash;
use super::errors::CommandError;
use super::state::truthy;

/// A user of the fake server. Changes of the fields take effect when a server is started with it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FakeUser {
    /// The name.
    pub name: String,
    /// The password as typed, without preparation.
    pub password: String,
    /// The database that the user belongs to.
    pub source: String,
    /// The mechanisms by which the user can authenticate: `SCRAM-SHA-1`, `SCRAM-SHA-256`, `PLAIN`.
    pub mechanisms: Vec<String>,
    /// Iterations of SCRAM. 4096 by default: fewer than on a real server, for speed.
    pub iterations: u32,
}

impl FakeUser {
    /// Creates a user of `admin` with both SCRAM mechanisms.
    pub fn new(name: &str, password: &str) -> Self {
        Self {
            name: name.to_owned(),
            password: password.to_owned(),
            source: "admin".to_owned(),
            mechanisms: vec!["SCRAM-SHA-1".to_owned(), "SCRAM-SHA-256".to_owned()],
            iterations: 4096,
        }
    }

    /// The same user of another database.
    #[must_use]
    pub fn with_source(self, source: &str) -> Self {
        Self { source: source.to_owned(), ..self }
    }

    /// The same user with these mechanisms.
    #[must_use]
    pub fn with_mechanisms(self, mechanisms: &[&str]) -> Self {
        Self { mechanisms: mechanisms.iter().map(|name| (*name).to_owned()).collect(), ..self }
    }

    /// The same user with that many iterations.
    #[must_use]
    pub fn with_iterations(self, iterations: u32) -> Self {
        Self { iterations, ..self }
    }
}

/// Faults of a dishonest server in SCRAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScramLie {
    /// A nonce that does not begin with the client's.
    Nonce,
    /// Another number of iterations than that of the user.
    Iterations(u32),
    /// A signature made without the user's keys.
    Signature,
    /// Malformed text instead of the first message.
    Garbage,
}

/// The server's data of a user for one SCRAM mechanism.
#[derive(Debug, Clone)]
struct Stored {
    hash: Hash,
    salt: Vec<u8>,
    /// Derived for the first conversation: most servers have none, and the hashes are slow without optimization.
    keys: Option<Keys>,
}

/// What a server can check the proof of a password with.
#[derive(Debug, Clone)]
pub(in crate::mongo) struct Keys {
    stored_key: Vec<u8>,
    server_key: Vec<u8>,
}

/// A conversation in progress.
#[derive(Clone, Debug)]
enum Conversation {
    /// Waits for the client's proof.
    Proof { user: usize, hash: Hash, keys: Keys, signed: String, nonce: String, skip_empty: bool },
    /// Waits for the client's empty message.
    Empty { user: usize },
}

/// The authentication state of one connection.
#[derive(Clone, Debug, Default)]
struct Session {
    /// `database.user` of each authenticated user.
    users: Vec<String>,
    conversation: Option<Conversation>,
}

/// The users, and the authenticated users of each connection.
#[derive(Clone, Debug)]
pub struct Auth {
    users: Vec<(FakeUser, Vec<Stored>)>,
    required: bool,
    pub lie: Option<ScramLie>,
    sessions: BTreeMap<u64, Session>,
}

/// The id of the conversation; a connection has at most one at a time.
const CONVERSATION_ID: i32 = 1;

impl Auth {
    pub fn new(users: &[FakeUser], required: bool, lie: Option<ScramLie>, mut random: impl FnMut() -> u64) -> Self {
        let mut store = |user: &FakeUser| {
            let hashes = user.mechanisms.iter().filter_map(|name| Hash::named(name));
            let stored = hashes.map(|hash| {
                let mut salt: Vec<u8> = (0..4).flat_map(|_| random().to_le_bytes()).collect();
                salt.truncate(hash.salt_bytes());
                Stored { hash, salt, keys: None }
            });
            (user.clone(), stored.collect())
        };
        Self { users: users.iter().map(&mut store).collect(), required, lie, sessions: BTreeMap::new() }
    }

    /// Returns `database.user` of each user authenticated on a connection.
    pub fn users_on(&self, connection: u64) -> &[String] {
        self.sessions.get(&connection).map_or(&[], |session| session.users.as_slice())
    }

    /// Discards the state of a connection.
    pub fn end(&mut self, connection: u64) {
        self.sessions.remove(&connection);
    }

    /// Checks whether a connection may run a command; some need no authentication, as on a real
    /// server.
    pub fn check(&self, connection: u64, name: &str) -> Result<(), CommandError> {
        const FOR_EVERYBODY: [&str; 9] = [
            "ping",
            "hello",
            "isMaster",
            "ismaster",
            "buildInfo",
            "buildinfo",
            "saslStart",
            "saslContinue",
            "whatsmyuri",
        ];
        if !self.required || FOR_EVERYBODY.contains(&name) || !self.users_on(connection).is_empty() {
            return Ok(());
        }
        Err(CommandError::new(13, format!("command {name} requires authentication")))
    }

    /// Completes the reply to hello: the user's mechanisms, and the reply to a speculative
    /// authentication. A speculative authentication that cannot be started is ignored.
    pub fn greet(&mut self, connection: u64, request: &Document, reply: &mut Document, random: [u64; 3]) {
        if let (Ok(asked), false) = (request.get_str("saslSupportedMechs"), self.users.is_empty()) {
            let known = self.users.iter().find(|(user, _)| format!("{}.{}", user.source, user.name) == asked);
            match known {
                Some((user, _)) => drop(reply.insert("saslSupportedMechs", user.mechanisms.clone())),
                None => drop(reply.remove("saslSupportedMechs")),
            }
        }
        let Ok(first) = request.get_document("speculativeAuthenticate") else { return };
        let plain = first.get_str("mechanism").is_ok_and(|name| name == "PLAIN");
        if let (Ok(db), false, true) = (first.get_str("db"), plain, first.contains_key("saslStart")) {
            if let Ok(mut answer) = self.start(connection, db, first, random) {
                answer.remove("ok");
                reply.insert("speculativeAuthenticate", answer);
            }
        }
    }

    /// Executes `saslStart`.
    pub fn start(
        &mut self,
        connection: u64,
        db: &str,
        command: &Document,
        random: [u64; 3],
    ) -> Result<Document, CommandError> {
        let session = self.sessions.entry(connection).or_default();
        session.conversation = None;
        let mechanism = command.get_str("mechanism").map_err(|_| CommandError::new(9, "mechanism is missing"))?;
        let payload = payload(command)?;
        if mechanism == "PLAIN" {
            let mut parts = payload.split('\0').skip(1);
            let (name, password) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            let fits = |user: &FakeUser| {
                user.mechanisms.iter().any(|has| has == mechanism) && user.name == name && user.password == password
            };
            let user = self.users.iter().find(|(user, _)| user.source == db && fits(user));
            let (user, _) = user.ok_or_else(refusal)?;
            session.users.push(format!("{}.{}", user.source, user.name));
            return Ok(reply("", true));
        }
        let unknown = || CommandError::new(334, format!("Received authentication for mechanism {mechanism}"));
        let hash = Hash::named(mechanism).ok_or_else(unknown)?;
        let bare = payload.strip_prefix("n,,").ok_or_else(refusal)?;
        let (name, client_nonce) =
            bare.strip_prefix("n=").and_then(|rest| rest.split_once(",r=")).ok_or_else(refusal)?;
        let name = name.replace("=2C", ",").replace("=3D", "=");
        let at = self.users.iter().position(|(user, _)| user.source == db && user.name == name);
        let (index, (user, all)) = at.and_then(|at| Some((at, self.users.get_mut(at)?))).ok_or_else(refusal)?;
        let stored = all.iter_mut().find(|stored| stored.hash == hash).ok_or_else(refusal)?;
        let keys = stored.keys.get_or_insert_with(|| hash.keys(user, &stored.salt)).clone();
        let own: Vec<u8> = random.iter().flat_map(|word| word.to_le_bytes()).collect();
        let nonce = match self.lie {
            Some(ScramLie::Nonce) => STANDARD.encode(&own),
            _ => format!("{client_nonce}{}", STANDARD.encode(&own)),
        };
        let iterations = match self.lie {
            Some(ScramLie::Iterations(iterations)) => iterations,
            _ => user.iterations,
        };
        let first = match self.lie {
            Some(ScramLie::Garbage) => "hello".to_owned(),
            _ => format!("r={nonce},s={},i={iterations}", STANDARD.encode(&stored.salt)),
        };
        let skip_empty = command.get_document("options").is_ok_and(|options| truthy(options, "skipEmptyExchange"));
        let signed = format!("{bare},{first}");
        session.conversation = Some(Conversation::Proof { user: index, hash, keys, signed, nonce, skip_empty });
        Ok(reply(&first, false))
    }

    /// Executes `saslContinue`.
    pub fn continue_conversation(&mut self, connection: u64, command: &Document) -> Result<Document, CommandError> {
        let session = self.sessions.entry(connection).or_default();
        let id = command.get("conversationId").and_then(super::errors::whole);
        let conversation = session.conversation.take().filter(|_| id == Some(i64::from(CONVERSATION_ID)));
        let conversation = conversation.ok_or_else(|| CommandError::new(17, "No SASL session state found"))?;
        let payload = payload(command)?;
        let (user, answer, done) = match conversation {
            Conversation::Empty { user } if payload.is_empty() => (user, String::new(), true),
            Conversation::Empty { .. } => return Err(refusal()),
            Conversation::Proof { user, hash, keys, signed, nonce, skip_empty } => {
                let (front, proof) = payload.rsplit_once(",p=").ok_or_else(refusal)?;
                if front != format!("c=biws,r={nonce}") {
                    return Err(refusal());
                }
                let signed = format!("{signed},{front}");
                let signature = hash.mac(&keys.stored_key, signed.as_bytes());
                let proof = STANDARD.decode(proof).map_err(|_| refusal())?;
                let key: Vec<u8> = proof.iter().zip(&signature).map(|(one, other)| one ^ other).collect();
                if proof.len() != signature.len() || hash.of(&key) != keys.stored_key {
                    return Err(refusal());
                }
                let mut verifier = hash.mac(&keys.server_key, signed.as_bytes());
                if self.lie == Some(ScramLie::Signature) {
                    verifier[0] ^= 1;
                }
                (user, format!("v={}", STANDARD.encode(verifier)), skip_empty)
            }
        };
        if done {
            let (user, _) = self.users.get(user).ok_or_else(refusal)?;
            session.users.push(format!("{}.{}", user.source, user.name));
        } else {
            session.conversation = Some(Conversation::Empty { user });
        }
        Ok(reply(&answer, done))
    }
}

fn refusal() -> CommandError {
    CommandError::new(18, "Authentication failed.")
}

fn reply(payload: &str, done: bool) -> Document {
    let payload = Binary { subtype: BinarySubtype::Generic, bytes: payload.as_bytes().to_vec() };
    doc! { "conversationId": CONVERSATION_ID, "done": done, "payload": payload, "ok": 1.0 }
}

/// Returns the payload, given as bytes or as text.
fn payload(command: &Document) -> Result<String, CommandError> {
    let text = match command.get("payload") {
        Some(Bson::Binary(binary)) => String::from_utf8(binary.bytes.clone()).ok(),
        Some(Bson::String(text)) => Some(text.clone()),
        _ => None,
    };
    text.ok_or_else(|| CommandError::new(14, "payload must be binary data or text"))
}
