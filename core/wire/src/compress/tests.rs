mod commands;
mod header;
#[cfg(any(feature = "snappy", feature = "zlib", feature = "zstd"))]
mod packer;

use alloc::vec::Vec;

use super::*;
use crate::bson::DocumentWriter;
use crate::message::{Flags, Outgoing, encode_message};

/// Every compressor that is compiled in.
fn available() -> Compressors {
    Compressor::ALL.into_iter().collect::<Compressors>().available()
}

/// A compressed message of these parts, valid or not.
fn compressed(opcode: i32, size: i32, id: u8, data: &[u8]) -> Vec<u8> {
    let length_bytes = saturate(COMPRESSED_HEADER_BYTES + data.len());
    let header = Header { length_bytes, request_id: 70, response_to: 7, opcode: OP_COMPRESSED };
    let mut bytes = header.to_bytes().to_vec();
    bytes.extend_from_slice(&opcode.to_le_bytes());
    bytes.extend_from_slice(&size.to_le_bytes());
    bytes.push(id);
    bytes.extend_from_slice(data);
    bytes
}

/// A request with one command and this filler.
fn request(name: &str, flags: Flags, filler: &str) -> Vec<u8> {
    let mut sink = Vec::new();
    let outgoing = Outgoing::request(70).with_flags(flags);
    encode_message(&mut sink, outgoing, &Limits::DEFAULT, |message| {
        message.body(|body: &mut DocumentWriter<'_, Vec<u8>>| body.int32(name, 1)?.str("filler", filler).map(drop))
    })
    .expect("room");
    sink
}
