//! A server with one fixed reply for each kind of request, encoded at compile time.

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// hello of a monitor or of a user without a password.
    Hello,
    /// hello that begins a SCRAM-SHA-256 conversation.
    Begin,
    /// The end of that conversation.
    Finish,
    /// Any other command.
    Command,
}

/// The user of the conversation.
pub const USER: &str = "ada";
/// The user's password.
pub const PASSWORD: &str = "correct horse";
/// The entropy of the client's nonce. The two fixed messages of the server match this nonce, the
/// user and the password.
pub const ENTROPY: [u8; 24] = [7; 24];
const SERVER_FIRST: &str = "r=J62ec1i/5Lff77+5ld4CXMIxTlNnWkJyserver-nonce,s=c2FsdCBvZiBzaXh0ZWVuLg==,i=4096";
const SERVER_FINAL: &str = "v=HpNLVp2kuHTTqsb6TBvvMJK7bOLXHGln+v+NAzr9IN0=";

/// Replies to the request at the front of `request`. Returns the length of the reply, or 0 if it
/// does not fit.
#[inline(never)]
pub fn answer(asked: Asked, request: &[u8], reply: &mut [u8]) -> usize {
    let text = match asked {
        Asked::Hello => HELLO.as_slice(),
        Asked::Begin => BEGIN.as_slice(),
        Asked::Finish => FINISH.as_slice(),
        Asked::Command => COMMAND.as_slice(),
    };
    let (Some(place), Some(id)) = (reply.get_mut(..text.len()), request.get(4..8)) else { return 0 };
    place.copy_from_slice(text);
    // The responseTo field of the reply.
    if let Some(place) = place.get_mut(8..12) {
        place.copy_from_slice(id);
    }
    text.len()
}

static HELLO: Bytes = message(hello());
static BEGIN: Bytes = message(hello().document("speculativeAuthenticate", sasl(false, SERVER_FIRST)));
static FINISH: Bytes = message(sasl(true, SERVER_FINAL).double("ok", 1.0));
static COMMAND: Bytes = message(Bytes::document_of().double("ok", 1.0));

const fn hello() -> Bytes {
    let version = Bytes::document_of().element(0x07, "processId", &[5; 12]).int64("counter", 6);
    Bytes::document_of()
        .boolean("helloOk", true)
        .boolean("isWritablePrimary", true)
        .document("topologyVersion", version)
        .int32("maxBsonObjectSize", 16_777_216)
        .int32("maxMessageSizeBytes", 48_000_000)
        .int32("maxWriteBatchSize", 100_000)
        .element(0x09, "localTime", &1_700_000_000_000_i64.to_le_bytes())
        .int32("logicalSessionTimeoutMinutes", 30)
        .int32("connectionId", 11)
        .int32("minWireVersion", 0)
        .int32("maxWireVersion", 21)
        .boolean("readOnly", false)
        .double("ok", 1.0)
}

const fn sasl(done: bool, payload: &str) -> Bytes {
    Bytes::document_of().int32("conversationId", 1).boolean("done", done).binary("payload", payload.as_bytes())
}

/// A message with one document and the request id 77.
const fn message(document: Bytes) -> Bytes {
    let body = document.closed();
    let length = 16 + 4 + 1 + body.as_slice().len();
    Bytes::EMPTY.number(length).number(77).number(0).number(2013).number(0).append(&[0]).append(body.as_slice())
}

/// A builder of bytes.
struct Bytes {
    bytes: [u8; 512],
    len: usize,
}

impl Bytes {
    const EMPTY: Self = Self { bytes: [0; 512], len: 0 };

    const fn document_of() -> Self {
        Self::EMPTY.number(0)
    }

    const fn as_slice(&self) -> &[u8] {
        self.bytes.split_at(self.len).0
    }

    const fn append(mut self, bytes: &[u8]) -> Self {
        let mut index = 0;
        while index < bytes.len() {
            self.bytes[self.len] = bytes[index];
            self.len += 1;
            index += 1;
        }
        self
    }

    /// Appends 32 bits.
    const fn number(self, number: usize) -> Self {
        self.append((number as u64).to_le_bytes().split_at(4).0)
    }

    const fn element(self, kind: u8, name: &str, value: &[u8]) -> Self {
        self.append(&[kind]).append(name.as_bytes()).append(&[0]).append(value)
    }

    const fn boolean(self, name: &str, value: bool) -> Self {
        self.element(0x08, name, &[value as u8])
    }

    const fn int32(self, name: &str, value: i32) -> Self {
        self.element(0x10, name, &value.to_le_bytes())
    }

    const fn int64(self, name: &str, value: i64) -> Self {
        self.element(0x12, name, &value.to_le_bytes())
    }

    const fn double(self, name: &str, value: f64) -> Self {
        self.element(0x01, name, &value.to_le_bytes())
    }

    const fn document(self, name: &str, value: Self) -> Self {
        self.element(0x03, name, value.closed().as_slice())
    }

    const fn binary(self, name: &str, value: &[u8]) -> Self {
        self.element(0x05, name, &[]).number(value.len()).append(&[0]).append(value)
    }

    /// Returns the document with its length and its terminator.
    const fn closed(self) -> Self {
        let mut this = self.append(&[0]);
        let length = (this.len as u64).to_le_bytes();
        let mut index = 0;
        while index < 4 {
            this.bytes[index] = length[index];
            index += 1;
        }
        this
    }
}
