//! An order service: HTTP over a MongoDB client, with transactions, a streamed list, and an orderly
//! end. The guide `order_service` of `poolhouse-client` explains it.
//!
//! ```sh
//! cargo run -p poolhouse-smol --example order_service -- 'mongodb://127.0.0.1:27017/shop?replicaSet=rs0' 127.0.0.1:8080
//! curl -i 127.0.0.1:8080/orders -d '{"number":"A-1","customer":"ada","amount_cents":1250,"what":"tea"}'
//! curl -i 127.0.0.1:8080/orders/A-1
//! curl -i '127.0.0.1:8080/orders?customer=ada'
//! curl -i -X POST 127.0.0.1:8080/orders/A-1/pay
//! curl -i 127.0.0.1:8080/health
//! ```
//!
//! It ends at SIGTERM or SIGINT. `orders` has all that the service does with the database, `http`
//! all of HTTP.

extern crate alloc;

mod http;
mod orders;

use async_signal::{Signal, Signals};
use orders::Orders;
use smol::net::TcpListener;
use smol::stream::StreamExt as _;

fn main() -> Result<(), Box<dyn core::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [uri, address] = &words[..] else { return Err("usage: order_service MONGODB_URI HOST:PORT".into()) };
    let mut signals = Signals::new([Signal::Term, Signal::Int])?;
    smol::block_on(async {
        let orders = Orders::open(uri).await?;
        let listener = TcpListener::bind(address).await?;
        println!("http://{}", listener.local_addr()?);
        let end = async { drop(signals.next().await) };
        http::serve(listener, orders.clone(), end).await;
        orders.close().await;
        Ok(())
    })
}
