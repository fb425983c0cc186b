//! TLS_AES_128_GCM_SHA256 whose cipher looks at what it has decrypted.
//!
//! embedded-tls calls the cipher of its suite with each record, and takes apart what comes back. It panics on plaintext that is empty, and on
//! messages of the handshake after the handshake. A cipher may refuse a record, and here it does.
//!
//! Read first: RFC 8446, "Record Payload Protection", "Post-Handshake Messages", "Alert Protocol".

use aes_gcm::Aes128Gcm;
use aes_gcm::aead::{AeadCore, AeadInPlace, Buffer, Error, Key, KeyInit, KeySizeUser, Nonce, Result, Tag};
use embedded_tls::{Aes128GcmSha256, TlsCipherSuite};

use super::watch::{Mark, VERSION};

/// The one suite that is offered.
#[derive(Debug)]
pub(super) struct Suite;

impl TlsCipherSuite for Suite {
    const CODE_POINT: u16 = Aes128GcmSha256::CODE_POINT;
    type Cipher = Checked;
    type KeyLen = <Aes128GcmSha256 as TlsCipherSuite>::KeyLen;
    type IvLen = <Aes128GcmSha256 as TlsCipherSuite>::IvLen;
    type Hash = <Aes128GcmSha256 as TlsCipherSuite>::Hash;
    type LabelBufferSize = <Aes128GcmSha256 as TlsCipherSuite>::LabelBufferSize;
}

/// AES-128-GCM, and a look at what was decrypted.
#[allow(unnameable_types, reason = "part of the suite, which is not public")]
pub(super) struct Checked(Aes128Gcm);

impl KeySizeUser for Checked {
    type KeySize = <Aes128Gcm as KeySizeUser>::KeySize;
}

impl KeyInit for Checked {
    fn new(key: &Key<Self>) -> Self {
        Self(Aes128Gcm::new(key))
    }
}

impl AeadCore for Checked {
    type NonceSize = <Aes128Gcm as AeadCore>::NonceSize;
    type TagSize = <Aes128Gcm as AeadCore>::TagSize;
    type CiphertextOverhead = <Aes128Gcm as AeadCore>::CiphertextOverhead;
}

impl AeadInPlace for Checked {
    fn encrypt_in_place_detached(&self, nonce: &Nonce<Self>, header: &[u8], bytes: &mut [u8]) -> Result<Tag<Self>> {
        self.0.encrypt_in_place_detached(nonce, header, bytes)
    }

    fn decrypt_in_place(&self, nonce: &Nonce<Self>, header: &[u8], buffer: &mut dyn Buffer) -> Result<()> {
        let (mark, header) = unmark(header).ok_or(Error)?;
        self.0.decrypt_in_place(nonce, &header, buffer)?;
        match verdict(mark, buffer.as_ref()) {
            Verdict::Pass => Ok(()),
            Verdict::Instead(plaintext) => {
                buffer.truncate(0);
                buffer.extend_from_slice(plaintext)
            }
            Verdict::Refuse => Err(Error),
        }
    }

    fn decrypt_in_place_detached(
        &self,
        nonce: &Nonce<Self>,
        header: &[u8],
        bytes: &mut [u8],
        tag: &Tag<Self>,
    ) -> Result<()> {
        let (mark, header) = unmark(header).ok_or(Error)?;
        self.0.decrypt_in_place_detached(nonce, &header, bytes, tag)?;
        if matches!(verdict(mark, bytes), Verdict::Pass) { Ok(()) } else { Err(Error) }
    }
}

/// Takes the watch's mark off a record's header.
fn unmark(header: &[u8]) -> Option<(Mark, [u8; 5])> {
    let [kind, _, mark, high, low] = *<&[u8; 5]>::try_from(header).ok()?;
    let [major, minor] = VERSION;
    Some((Mark::of(mark)?, [kind, major, minor, high, low]))
}

/// What embedded-tls is given.
enum Verdict {
    /// What there is.
    Pass,
    /// Something else.
    Instead(&'static [u8]),
    /// An error.
    Refuse,
}

fn verdict(mark: Mark, plaintext: &[u8]) -> Verdict {
    // After the content comes its type, then zeros.
    let Some(end) = plaintext.iter().rposition(|byte| *byte != 0) else { return Verdict::Refuse };
    let (content, kind) = plaintext.split_at(end);
    match (mark, kind.first().copied()) {
        (Mark::Shaking, _) | (Mark::Open, Some(DATA)) => Verdict::Pass,
        // Tickets for another time are not collected.
        (Mark::Open, Some(HANDSHAKE)) if are_tickets(content) => Verdict::Instead(NO_DATA),
        (Mark::Open, Some(ALERT)) => match content {
            [_, 42..=46 | 48 | 49 | 116] => Verdict::Instead(REFUSED_BY_PEER),
            [_, _] => Verdict::Pass,
            _ => Verdict::Refuse,
        },
        (Mark::Open, _) => Verdict::Refuse,
    }
}

/// Whether messages of the handshake are whole tickets and nothing else.
fn are_tickets(mut content: &[u8]) -> bool {
    const TICKET: u8 = 4;
    while let [TICKET, a, b, c, rest @ ..] = content {
        let len = u32::from_be_bytes([0, *a, *b, *c]);
        let Some(next) = usize::try_from(len).ok().and_then(|len| rest.get(len..)) else { return false };
        content = next;
    }
    content.is_empty()
}

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;
/// Data of no bytes.
const NO_DATA: &[u8] = &[DATA];
/// Of an alert embedded-tls tells only that there was one. Of an encrypted change of ciphers, which no peer of a session can get past here, it says
/// [`Unimplemented`](embedded_tls::TlsError::Unimplemented): so this is what an alert is that refuses a certificate.
const REFUSED_BY_PEER: &[u8] = &[20];
