pub(in crate::client) mod timers;

use super::*;

#[test]
fn file_that_is_not_there_or_not_text_is_read_as_far_as_it_goes() {
    assert_eq!(read(Path::new("/nonexistent/resolv.conf")), "");
    assert_eq!(read(Path::new("/")), "", "a folder");
    let path = std::env::temp_dir().join(std::format!("poolhouse-resolver-{}", std::process::id()));
    std::fs::write(&path, b"nameserver 10.0.0.1\n\xFF\nnameserver 10.0.0.2\n").unwrap();
    let config = ResolverConfig::parse(&read(&path));
    let oversized = vec![b'#'; 3 << 20];
    std::fs::write(&path, oversized).unwrap();
    let length = read(&path).len();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(config.servers.len(), 2);
    assert_eq!(length, 1 << 20);
}
