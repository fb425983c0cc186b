//! Output of a connection: replies, with the faults applied.

use futures_lite::future::yield_now;

use super::super::fault::{Cut, Fault, FaultKind, ReplyFacts};
use super::super::shared::Ended;
use super::super::wire::{self, HEADER_BYTES};
use super::{BODY_AT, Connection, KEEP_BYTES, Step};

impl Connection {
    pub(super) async fn write(&mut self, mut bytes: &[u8]) -> Step<()> {
        while !bytes.is_empty() {
            let count = self.stream.write(bytes).await.map_err(|error| Ended::Io(error.to_string()))?;
            self.sent_bytes += u64::try_from(count).unwrap_or(0);
            bytes = &bytes[count..];
        }
        Ok(())
    }

    pub(super) fn cut(&self, by: Cut, kind: FaultKind) -> Ended {
        match by {
            Cut::Fin => self.stream.finish(),
            Cut::Rst => self.stream.reset_on_close(),
        }
        Ended::Fault(kind)
    }

    /// Sends the reply in the output buffer, with the faults in force applied.
    pub(super) async fn send(&mut self, name: &str) -> Step<()> {
        let mut out = core::mem::take(&mut self.out);
        let fault = if self.common.shared.has_rules() { self.take_fault(name, out.len(), false) } else { None };
        match fault {
            None => self.write(&out).await?,
            Some(fault) => self.send_faulty(&mut out, fault).await?,
        }
        self.common.shared.with(|inner| inner.replied(self.id, self.sent_bytes));
        if out.capacity() <= KEEP_BYTES {
            self.out = out;
        }
        Ok(())
    }

    /// Whether a request with the flag moreToCome is answered nevertheless.
    pub(super) fn has_unwanted_reply(&self, name: &str) -> bool {
        self.common.shared.has_rules() && self.take_fault(name, 0, true).is_some()
    }

    fn take_fault(&self, name: &str, reply_bytes: usize, is_unwanted: bool) -> Option<Fault> {
        let reply = ReplyFacts {
            connection: self.id,
            app_name: self.app_name.as_deref(),
            command: Some(name),
            sent_bytes: self.sent_bytes,
            reply_bytes,
            is_unwanted,
        };
        self.common.shared.with(|inner| inner.faults.take(reply))
    }

    async fn send_faulty(&mut self, out: &mut Vec<u8>, fault: Fault) -> Step<()> {
        let kind = fault.kind();
        match fault {
            Fault::CloseOnAccept(by) => Err(self.cut(by, kind)),
            Fault::Silence => self.mute().await,
            Fault::Delay(time) => {
                self.pause(time).await?;
                self.write(out).await
            }
            Fault::CutStream { after_bytes, by } => {
                let left = usize::try_from(after_bytes.saturating_sub(self.sent_bytes)).unwrap_or(usize::MAX);
                self.write(&out[..left.min(out.len())]).await?;
                Err(self.cut(by, kind))
            }
            Fault::Trickle { gap } => {
                for byte in out.iter() {
                    self.write(core::slice::from_ref(byte)).await?;
                    if gap.is_zero() { yield_now().await } else { self.pause(gap).await? }
                }
                Ok(())
            }
            Fault::Garbage(bytes) => self.write(&bytes).await,
            Fault::WrongResponseTo => {
                let asked = wire::i32_at(out, 8);
                out[8..12].copy_from_slice(&asked.wrapping_add(1 << 20).to_le_bytes());
                self.write_sealed(out).await
            }
            // The fault is that there is a reply.
            Fault::UnwantedReply => self.write(out).await,
            Fault::DuplicateReply => {
                self.write(out).await?;
                self.write(out).await
            }
            Fault::TruncatedFrame { bytes, by } => {
                self.write(&out[..bytes.min(out.len() - 1)]).await?;
                Err(self.cut(by, kind))
            }
            Fault::LengthLie(length) => {
                out[..4].copy_from_slice(&length.to_le_bytes());
                self.write_sealed(out).await
            }
            Fault::OpCodeLie(code) => {
                wire::seal_checksum(out);
                out[12..16].copy_from_slice(&code.to_le_bytes());
                self.write(out).await
            }
            Fault::MoreToComeLie => {
                out[HEADER_BYTES] |= 2;
                self.write_sealed(out).await
            }
            Fault::BadChecksum => {
                if out[HEADER_BYTES] & 1 == 0 {
                    out[HEADER_BYTES] |= 1;
                    out.extend_from_slice(&[0; 4]);
                }
                wire::seal(out);
                let last = out.len() - 1;
                out[last] ^= 0x55;
                self.write(out).await
            }
            Fault::RawBody(body) => {
                out.truncate(HEADER_BYTES);
                out.extend_from_slice(&body);
                let length = i32::try_from(out.len()).unwrap_or(i32::MAX);
                out[..4].copy_from_slice(&length.to_le_bytes());
                self.write(out).await
            }
            Fault::NeverFinished => {
                self.write(&out[..out.len() - 1]).await?;
                self.mute().await
            }
            Fault::Oversized { bytes } => self.write_oversized(out, bytes).await,
            Fault::Unsolicited(bytes) => {
                self.write(out).await?;
                self.write(&bytes).await
            }
        }
    }

    async fn write_sealed(&mut self, out: &mut [u8]) -> Step<()> {
        wire::seal_checksum(out);
        self.write(out).await
    }

    /// Writes `{ok: 1.0, filler: binary}` as a message of `bytes`, generated in pieces.
    async fn write_oversized(&mut self, out: &mut Vec<u8>, bytes: u32) -> Step<()> {
        const HEAD: &[u8] = b"\x01ok\0\0\0\0\0\0\0\xf0\x3f\x05filler\0";
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        let head_bytes = i32::try_from(BODY_AT + 4 + HEAD.len() + 5).unwrap_or(i32::MAX);
        let bytes = bytes.max(head_bytes + 1);
        let body_at = i32::try_from(BODY_AT).unwrap_or(0);
        out.truncate(BODY_AT);
        out.resize(BODY_AT, 0);
        out[..4].copy_from_slice(&bytes.to_le_bytes());
        out[12..16].copy_from_slice(&wire::OP_MSG.to_le_bytes());
        out[HEADER_BYTES..].fill(0);
        out.extend_from_slice(&(bytes - body_at).to_le_bytes());
        out.extend_from_slice(HEAD);
        let filler = bytes - head_bytes - 1;
        out.extend_from_slice(&filler.to_le_bytes());
        out.push(0);
        self.write(out).await?;
        let piece = [0; 16 * 1024];
        // The filler and the document's terminator are both zeros.
        let mut left = usize::try_from(filler).unwrap_or(0) + 1;
        while left > 0 {
            let count = left.min(piece.len());
            self.write(&piece[..count]).await?;
            left -= count;
        }
        Ok(())
    }
}
