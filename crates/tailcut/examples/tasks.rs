//! Calls from tokio tasks, each with its own deadline.

use std::time::Duration;

use tailcut::{AsyncClient, CallOptions, Server};

#[tokio::main]
async fn main() -> Result<(), tailcut::Error> {
    let mut server = Server::bind("127.0.0.1:0")?;
    let (address, stop) = (server.local_address(), server.stop_handle());
    let serving = std::thread::spawn(move || {
        server.run(|request| {
            // A client that has gone needs no answer.
            let _ = request.reply_in_place(|bytes| bytes.reverse());
        })
    });

    let client = AsyncClient::connect(address)?;
    let tasks = ["stressed", "drawer", "live"].map(|word| {
        let client = client.clone();
        let options = CallOptions { idempotent: true, ..CallOptions::default() };
        tokio::spawn(
            async move { client.call_with(word, options, Duration::from_millis(200)).await },
        )
    });
    for task in tasks {
        println!("{}", String::from_utf8_lossy(&task.await.expect("the task does not panic")?));
    }

    drop(client);
    stop.stop();
    serving.join().expect("the server does not panic")
}
