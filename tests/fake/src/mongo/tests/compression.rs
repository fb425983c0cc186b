use super::super::{Algorithm, BadInput, Ended, Reply, compressed_raw, hello};
use super::*;

/// Returns a client whose hello offers all algorithms, and the negotiated ones.
fn greeted(server: &FakeServer) -> (BlockingClient, Vec<String>) {
    let mut client = connect(server);
    let mut greeting = hello("app");
    greeting.insert("compression", vec!["zstd", "lz4", "noop", "zlib", "snappy", "zlib"]);
    let reply = client.run("admin", greeting).unwrap();
    let agreed = reply.get_array("compression").map(|names| names.iter().filter_map(|name| name.as_str()).collect());
    let agreed: Vec<_> = agreed.unwrap_or_default();
    (client, agreed.into_iter().map(str::to_owned).collect())
}

fn ended(server: &FakeServer) -> Option<Ended> {
    server.wait_until(PATIENCE, |view| view.open_count() == 0).unwrap();
    server.look(|view| view.closed().last().and_then(|info| info.ended.clone()))
}

#[test]
fn compressed_request_is_answered_compressed_and_a_plain_one_plain() {
    let server = start();
    let (mut client, agreed) = greeted(&server);
    assert_eq!(agreed, ["zstd", "zlib", "snappy"]);
    for algorithm in [Algorithm::Snappy, Algorithm::Zlib, Algorithm::Zstd] {
        let id = client.send_compressed(algorithm, 0, ping()).unwrap();
        let Reply { response_to, algorithm: found, body, .. } = client.read().unwrap();
        assert_eq!((response_to, found, is_ok(&body)), (id, Some(algorithm), true));
        client.send(0, ping()).unwrap();
        assert_eq!(client.read().unwrap().algorithm, None);
    }
    let algorithms: Vec<_> = server.log().into_iter().filter_map(|received| received.algorithm).collect();
    assert_eq!(algorithms, [Algorithm::Snappy, Algorithm::Zlib, Algorithm::Zstd]);
}

#[test]
fn wrong_or_not_negotiated_compression_ends_its_connection() {
    let server = start();
    let body = ping().to_vec().unwrap();
    let message = [&[0; 5][..], &body].concat();
    let mut header = [0; 16];
    header[12..].copy_from_slice(&2013_i32.to_le_bytes());
    let zlib = Algorithm::Zlib.compress(&message);
    for (size, id, data, why) in [
        (message.len(), 9, &zlib[..], "the compressor"),
        (message.len(), 0, &message[..], "not agreed on"),
        (message.len() + 1, 2, &zlib, "another size"),
        (message.len() - 1, 2, &zlib, "another size"),
        (message.len(), 2, &message, "the data"),
    ] {
        let (mut client, _) = greeted(&server);
        std::io::Write::write_all(client.stream(), &compressed_raw(&header, size, id, data)).unwrap();
        assert!(client.read().is_err());
        assert_eq!(ended(&server), Some(Ended::BadInput(BadInput::Compressed(why))));
    }
    let (mut client, _) = greeted(&server);
    client.send_compressed(Algorithm::Zlib, 0, doc! { "hello": 1, "$db": "admin" }).unwrap();
    assert!(client.read().is_err());
    assert_eq!(ended(&server), Some(Ended::BadInput(BadInput::Compressed("a command that must not be"))));
}
