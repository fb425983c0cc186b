//! TLS_AES_128_GCM_SHA256 with a cipher that checks its decrypted content.
//!
//! embedded-tls calls the cipher of its suite with each record and parses the result. It panics on
//! empty plaintext, and on handshake messages after the handshake. A cipher may refuse a record,
//! and this one refuses these.
//!
//! Read first: RFC 8446, "Record Payload Protection", "Post-Handshake Messages", "Alert Protocol".

use aes_gcm::Aes128Gcm;
use aes_gcm::aead::{AeadCore, AeadInPlace, Buffer, Error, Key, KeyInit, KeySizeUser, Nonce, Result, Tag};
use embedded_tls::{Aes128GcmSha256, TlsCipherSuite};

use super::watch::{Mark, VERSION};

/// The only suite that is offered.
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

/// AES-128-GCM with a check of the decrypted content.
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

/// Removes the watch's mark from a record's header.
fn unmark(header: &[u8]) -> Option<(Mark, [u8; 5])> {
    let [kind, _, mark, high, low] = *<&[u8; 5]>::try_from(header).ok()?;
    let [major, minor] = VERSION;
    Some((Mark::of(mark)?, [kind, major, minor, high, low]))
}

/// The content that is passed to embedded-tls.
enum Verdict {
    /// The decrypted content, unchanged.
    Pass,
    /// A substitute.
    Instead(&'static [u8]),
    /// An error.
    Refuse,
}

fn verdict(mark: Mark, plaintext: &[u8]) -> Verdict {
    // The content is followed by its type, then by zeros.
    let Some(end) = plaintext.iter().rposition(|byte| *byte != 0) else { return Verdict::Refuse };
    let (content, kind) = plaintext.split_at(end);
    match (mark, kind.first().copied()) {
        (Mark::Handshake, _) | (Mark::Open, Some(DATA)) => Verdict::Pass,
        // Session tickets are ignored: sessions are not resumed.
        (Mark::Open, Some(HANDSHAKE)) if are_tickets(content) => Verdict::Instead(NO_DATA),
        (Mark::Open, Some(ALERT)) => match content {
            [_, 42..=46 | 48 | 49 | 116] => Verdict::Instead(REFUSED_BY_PEER),
            [_, _] => Verdict::Pass,
            _ => Verdict::Refuse,
        },
        (Mark::Open, _) => Verdict::Refuse,
    }
}

/// Whether these handshake messages are complete session tickets and nothing else.
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
/// A data record without content.
const NO_DATA: &[u8] = &[DATA];
/// The substitute for an alert that refuses a certificate. embedded-tls reports an alert without
/// its description. For an encrypted ChangeCipherSpec it reports
/// [`Unimplemented`](embedded_tls::TlsError::Unimplemented), and no such record of a peer passes
/// this cipher, so this error identifies the alert.
const REFUSED_BY_PEER: &[u8] = &[20];
