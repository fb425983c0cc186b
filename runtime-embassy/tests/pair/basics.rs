//! What a client is for.

use super::net::run;
use super::support::{server, small};

#[test]
fn client_connects_and_pings() {
    run(async |net| {
        let server = server();
        let rig = small(net, &server);
        rig.ping().await.expect("a ping");
        assert_eq!(server.count_of("ping"), 1);
        rig.at_rest(&server, 1).await;
        rig.end(&[&server]).await;
    });
}
